package wire

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// maxFields is how many header fields a head may have.
const maxFields = 512

// headEnd looks for the end of a head in b, of which the first from bytes were looked at before. It returns the length
// with the empty line, or 0 when it is not there yet, and a problem when a line ends with a bare LF: what reads
// differently here and at the next hop.
func headEnd(b []byte, from int) (int, *Problem) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, nil
		}
		i += from
		if i == 0 || b[i-1] != '\r' {
			return 0, bad("bare_lf", "A line of the request's head ends with a bare LF; end each line with CR LF.")
		}
		if i >= 3 && b[i-2] == '\n' {
			return i + 1, nil
		}
		from = i + 1
	}
}

// fields parses header lines: each ends with CR LF, the last one is empty. They go into h, which is empty, nil for a new
// one; room is for the values, as far as it reaches, and belongs to h from then on.
func fields(s string, h http.Header, room []string) (http.Header, *Problem) {
	n := strings.Count(s, "\r\n") - 1
	if n > maxFields {
		return nil, problem(http.StatusRequestHeaderFieldsTooLarge, "too_many_fields", "The head has too many fields; send at most 512.")
	}
	if h == nil {
		h = make(http.Header, n)
	}
	values := room
	if n > len(room) {
		values = make([]string, n)
	}
	for s != "\r\n" {
		end := strings.Index(s, "\r\n")
		if end < 0 {
			return nil, bad("bad_field", "The head is cut off.")
		}
		name, value, p := field(s[:end])
		if p != nil {
			return nil, p
		}
		s = s[end+2:]
		key := textproto.CanonicalMIMEHeaderKey(name)
		if had := h[key]; had != nil {
			h[key] = append(had, value)
			continue
		}
		// The capacity of one makes an append copy instead of running into the next field's value.
		values[0] = value
		h[key], values = values[:1:1], values[1:]
	}
	return h, nil
}

func field(line string) (name, value string, p *Problem) {
	colon := strings.IndexByte(line, ':')
	switch {
	case line != "" && (line[0] == ' ' || line[0] == '\t'):
		return "", "", bad("folded", "A header field goes on in a second line, which is obsolete and read differently by different servers; put it in one line.")
	case colon < 0:
		return "", "", bad("bad_field", "A line of the head has no colon; each must be Name: value.")
	case !allToken(line[:colon]):
		return "", "", bad("bad_field_name", "The name of a header field is empty or has a space or another character that is not allowed; nothing may stand between it and its colon.")
	}
	value = trimOWS(line[colon+1:])
	if !allText(value) {
		return "", "", bad("bad_field_value", "The value of a header field has a control character; send text.")
	}
	return line[:colon], value, nil
}

// hasListed reports whether a comma-separated field lists a word, in any case.
func hasListed(values []string, word string) bool {
	for _, line := range values {
		for line != "" {
			var item string
			item, line, _ = strings.Cut(line, ",")
			if strings.EqualFold(trimOWS(item), word) {
				return true
			}
		}
	}
	return false
}

// contentLength reads the Content-Length fields: -1 when there are none. One that is said several times is left in h once
// (RFC 9110 section 8.6).
func contentLength(h http.Header) (int64, *Problem) {
	values := h["Content-Length"]
	if len(values) == 0 {
		return -1, nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return 0, bad("content_length_differs", "Content-Length is given twice with different values; give it once.")
		}
	}
	s := values[0]
	if s == "" || len(s) > 18 {
		return 0, bad("bad_content_length", "Content-Length must be a number of at most 18 digits.")
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, bad("bad_content_length", "Content-Length must have digits only.")
		}
		n = n*10 + int64(s[i]-'0')
	}
	if len(values) > 1 {
		h["Content-Length"] = values[:1]
	}
	return n, nil
}
