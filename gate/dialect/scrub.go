package dialect

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxErrorMessage bounds an engine's error message in bytes.
const maxErrorMessage = 300

// echoes matches the places where validators repeat what the caller sent, up to the end of the line: the repeated
// text may hold anything, so nothing behind it can be told apart from it.
var echoes = regexp.MustCompile(`['"]?\binput(_value)?['"]?\s*[:=].*`)

// credentials matches what looks like a key or a token.
var credentials = regexp.MustCompile(`(?i)\b(?:(?:bearer\s+)+\S+|(?:sk|pk|hf|adm)[-_][A-Za-z0-9_\-]{6,}|eyJ[A-Za-z0-9_\-.]{10,})`)

// scrub makes an engine's error message fit for logs and the journal: without echoed input, without what looks
// like a credential, valid UTF-8 and at most maxErrorMessage bytes.
func scrub(message string) string {
	if len(message) > 4*maxErrorMessage {
		message = message[:4*maxErrorMessage]
	}
	// First, so that what bad bytes keep apart is not put together when they are taken out.
	message = strings.ToValidUTF8(message, "")
	message = echoes.ReplaceAllString(message, "[input removed]")
	message = credentials.ReplaceAllString(message, "[removed]")
	return cutText(message, maxErrorMessage)
}

// cutText cuts at a character's edge.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
