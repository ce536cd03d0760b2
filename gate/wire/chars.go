package wire

// isToken reports the characters of methods and field names (RFC 9110 section 5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

func allToken(s string) bool {
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}

// isText reports the characters of field values: everything but control characters, tabs excepted.
func isText(c byte) bool { return c >= 0x20 && c != 0x7f || c == '\t' }

func allText(s string) bool {
	for i := range len(s) {
		if !isText(s[i]) {
			return false
		}
	}
	return true
}

// isHost reports the characters that a Host field may have: those of a URL's authority.
func isHost(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '$', '%', '&', '(', ')', '*', '+', ',', '-', '.', ':', ';', '=', '[', '\'', ']', '_', '~':
		return true
	}
	return false
}

// plainPath reports the characters of a path that means the same escaped and unescaped.
func plainPath(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '/', '-', '_', '.', '~':
		return true
	}
	return false
}

// trimOWS drops spaces and tabs at both ends.
func trimOWS(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
