package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// last ends a script: a server that still listens answers it and closes.
const last = "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

// chunkedHead begins a request whose body is chunked.
const chunkedHead = "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"

// outcome plays a script to a server and says what came back: statuses, and bodies of what was served.
func outcome(t *testing.T, addr, script string) string {
	t.Helper()
	c := dial(t, addr)
	// A server may close before it has read everything.
	_, _ = io.WriteString(c, script)
	var out []string
	br := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				out = append(out, fmt.Sprintf("%T", err))
			}
			return strings.Join(out, " | ")
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		text := strconv.Itoa(resp.StatusCode)
		if resp.StatusCode == http.StatusOK {
			text += " " + string(body)
		}
		out = append(out, text)
	}
}

// served is what the echo says to a request without a body.
func served(method, target string) string {
	return fmt.Sprintf(`200 %s %s HTTP/1.1 host="h" len=0 body="" err=false`, method, target)
}

func TestScriptsEndAsWithNetHTTP(t *testing.T) {
	ours, stock := serve(t, &Server{Handler: handlerEcho}), serveStock(t, handlerEcho)
	// differs is what we do where net/http does something else, and why says why that is meant.
	for name, tc := range map[string]struct{ script, differs, why string }{
		"a request":                 {script: "GET / HTTP/1.1\r\nHost: h\r\n\r\n" + last},
		"pipelining":                {script: strings.Repeat("GET /p HTTP/1.1\r\nHost: h\r\n\r\n", 5) + last},
		"bodies in a row":           {script: strings.Repeat("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", 3) + last},
		"chunks":                    {script: chunkedHead + "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n" + last},
		"chunk extension":           {script: chunkedHead + "3;a=b\r\nabc\r\n0\r\n\r\n" + last},
		"trailers":                  {script: chunkedHead + "3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n" + last},
		"capital hex":               {script: chunkedHead + "A\r\n0123456789\r\n0\r\n\r\n" + last},
		"HTTP/1.0":                  {script: "GET / HTTP/1.0\r\n\r\n"},
		"HTTP/1.0 kept":             {script: "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + last},
		"close among others":        {script: "GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n" + last},
		"OPTIONS *":                 {script: "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n" + last},
		"query and escapes":         {script: "GET /a%2Fb?x=%20;y HTTP/1.1\r\nHost: h\r\n\r\n" + last},
		"question mark alone":       {script: "GET /a? HTTP/1.1\r\nHost: h\r\n\r\n" + last},
		"two slashes":               {script: "GET //a//b HTTP/1.1\r\nHost: h\r\n\r\n" + last},
		"bytes beyond ASCII":        {script: "GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\nX: \xc3\xa9\r\n\r\n" + last},
		"empty host":                {script: "GET / HTTP/1.1\r\nHost:\r\n\r\n" + last},
		"same length twice":         {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx" + last},
		"unknown method":            {script: "BREW / HTTP/1.1\r\nHost: h\r\n\r\n" + last},
		"value with tabs":           {script: "GET / HTTP/1.1\r\nHost: h\r\nX:\t a\tb \t\r\n\r\n" + last},
		"no host":                   {script: "GET / HTTP/1.1\r\n\r\n"},
		"two hosts":                 {script: "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
		"host with a slash":         {script: "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"},
		"host with a space":         {script: "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
		"two lengths":               {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"},
		"list of lengths":           {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\nhello"},
		"signed length":             {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello"},
		"length in hex":             {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\nhello"},
		"huge length":               {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nhello"},
		"space before the colon":    {script: "GET / HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n"},
		"empty name":                {script: "GET / HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n"},
		"no colon":                  {script: "GET / HTTP/1.1\r\nHost: h\r\nnonsense\r\n\r\n"},
		"NUL in a value":            {script: "GET / HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n"},
		"DEL in a value":            {script: "GET / HTTP/1.1\r\nHost: h\r\nX: a\x7fb\r\n\r\n"},
		"NUL in the target":         {script: "GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n"},
		"space in the target":       {script: "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"},
		"HTTP/0.9":                  {script: "GET /\r\n\r\n"},
		"lower-case version":        {script: "GET / http/1.1\r\nHost: h\r\n\r\n"},
		"HTTP/2 by name":            {script: "GET / HTTP/2.0\r\nHost: h\r\n\r\n"},
		"HTTP/3 by name":            {script: "GET / HTTP/3.0\r\nHost: h\r\n\r\n"},
		"leading space":             {script: " GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"gzip coding":               {script: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"},
		"coded twice":               {script: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
		"unknown expectation":       {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: fun\r\n\r\nx"},
		"first line folded":         {script: "GET / HTTP/1.1\r\n Host: h\r\n\r\n"},
		"bad chunk size":            {script: chunkedHead + "zz\r\nabc\r\n0\r\n\r\n"},
		"negative chunk":            {script: chunkedHead + "-3\r\nabc\r\n0\r\n\r\n"},
		"chunk longer than it says": {script: chunkedHead + "3\r\nabcd\r\n0\r\n\r\n"},
		"LF after a chunk size":     {script: chunkedHead + "3\nabc\r\n0\r\n\r\n"},
		"huge chunk size":           {script: chunkedHead + "fffffffffffffffff\r\n"},

		"both lengths": {script: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + last,
			differs: "400", why: "a front and a back that believe different lengths see different requests"},
		"bare LF": {script: "GET / HTTP/1.1\nHost: h\n\n" + last, differs: "400", why: "not every hop takes LF for an end"},
		"bare LF in a head": {script: "GET / HTTP/1.1\r\nHost: h\r\nX: a\nY: b\r\n\r\n" + last,
			differs: "400", why: "not every hop takes LF for an end"},
		"folded": {script: "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n" + last, differs: "400", why: "RFC 9112 section 5.2 lets a server refuse it"},
		"absolute target": {script: "GET http://other/x HTTP/1.1\r\nHost: h\r\n\r\n" + last, differs: "400",
			why: "two names for the server, and this is no proxy"},
		"CONNECT": {script: "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n" + last, differs: "400", why: "this is no proxy"},
		"chunked in HTTP/1.0": {script: "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", differs: "400",
			why: "a 1.0 hop would have seen another body"},
		"HTTP/1.7":     {script: "GET / HTTP/1.7\r\nHost: h\r\nConnection: close\r\n\r\n", differs: "505", why: "there is none"},
		"HTTP/2 aloud": {script: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", differs: "505", why: "said what is not served"},
		"empty lines first": {script: "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n" + last,
			differs: served("GET", "/") + " | " + served("GET", "/last"), why: "RFC 9112 section 2.2 asks servers to pass over them"},
	} {
		t.Run(name, func(t *testing.T) {
			got, theirs := outcome(t, ours, tc.script), outcome(t, stock, tc.script)
			switch {
			case got == "" && tc.differs == "":
				t.Error("no answer at all")
			case tc.differs == "" && got != theirs:
				t.Errorf("we: %s\nnet/http: %s", got, theirs)
			case tc.differs != "" && got != tc.differs:
				t.Errorf("we: %s\nmeant: %s (%s)", got, tc.differs, tc.why)
			case tc.differs != "" && got == theirs:
				t.Errorf("no difference any more: %s", got)
			}
		})
	}
}
