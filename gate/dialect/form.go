package dialect

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// maxFormField bounds a form field that is read; the prompt of a transcription may be longer and is only measured.
const maxFormField = 1024

// readForm takes the facts of a multipart form (audio). File parts are walked over, never copied.
func readForm(f *Facts, h http.Header, body []byte) *Problem {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return bad("", "The Content-Type must be multipart/form-data with a boundary.")
	}
	// Go's reader also takes a preamble and bare line feeds, engines do not: two readers would see two forms.
	if !bytes.HasPrefix(body, []byte("--"+params["boundary"]+"\r\n")) {
		return bad("", "The form must begin with its boundary, and its lines must end with a carriage return and a line feed.")
	}
	form := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	modelSeen := false
	for {
		// The raw part: engines do not undo a Content-Transfer-Encoding, so neither may the gate.
		part, err := form.NextRawPart()
		if err == io.EOF { // bare: a form that is cut off gives an error that wraps io.EOF
			break
		}
		if err != nil {
			return bad("", "The form is malformed: it ends early or a part is broken. Send a complete multipart/form-data body.")
		}
		if p := readPart(f, part, &modelSeen); p != nil {
			return p
		}
	}
	if !modelSeen {
		return bad("model", `The form field "model" is missing; GET /v1/models lists the names.`)
	}
	f.LargestText = f.Text
	return nil
}

func readPart(f *Facts, part *multipart.Part, modelSeen *bool) *Problem {
	// Engines do not know the extended form name*=…, so a field named that way is not what it seems to be.
	if strings.Contains(strings.ToLower(part.Header.Get("Content-Disposition")), "name*=") && part.FileName() == "" {
		return bad("", "A form field uses the extended notation for its name; send plain names.")
	}
	name := part.FormName()
	if part.FileName() != "" {
		if name == "model" {
			return bad("model", `The form field "model" must be text, but it is a file.`)
		}
		f.Text.Media++
		return nil
	}
	switch name {
	case "model":
		text, p := fieldText(part, name)
		if p != nil {
			return p
		}
		if *modelSeen && text != f.Model {
			return bad("model", `The form field "model" appears twice with different values; send it once.`)
		}
		*modelSeen = true
		return setModel(f, text)
	case "stream":
		return formStream(f, part)
	case "prompt":
		return formPrompt(f, part)
	}
	return nil
}

func formStream(f *Facts, part *multipart.Part) *Problem {
	text, p := fieldText(part, "stream")
	if p != nil {
		return p
	}
	switch strings.ToLower(text) {
	case "true", "1", "on", "t", "yes", "y":
		f.Stream = true
	case "false", "0", "off", "f", "no", "n", "":
		f.Stream = false
	default:
		return bad("stream", `The form field "stream" must be true or false.`)
	}
	return nil
}

func formPrompt(f *Facts, part *multipart.Part) *Problem {
	text, err := io.ReadAll(part)
	if err != nil {
		return bad("prompt", `The form field "prompt" ends early.`)
	}
	f.Text.addText(text, false)
	return nil
}

func fieldText(part *multipart.Part, name string) (string, *Problem) {
	text, err := io.ReadAll(io.LimitReader(part, maxFormField+1))
	if err != nil {
		return "", bad(name, "The form field %q ends early.", name)
	}
	if len(text) > maxFormField {
		return "", bad(name, "The form field %q is longer than %d bytes.", name, maxFormField)
	}
	return string(text), nil
}
