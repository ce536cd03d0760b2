package dialect

import (
	"bytes"
	"fmt"
)

// addContent measures a message's content: a string, a list of parts or one part.
func (t *TextSize) addContent(v value) {
	switch v.kind() {
	case '"':
		t.addPlain(v)
	case '[':
		for item := range v.items() {
			t.addContent(item)
		}
	case '{':
		t.addObject(v)
	}
}

// addPlain measures a string that may be a data URL instead of text.
func (t *TextSize) addPlain(v value) {
	if isDataURL(v) {
		t.Media++
		return
	}
	t.addString(v)
}

func isDataURL(v value) bool {
	return bytes.HasPrefix(v.raw, []byte(`"data:`)) && bytes.Contains(v.raw[:min(len(v.raw), 256)], []byte(";base64,"))
}

// addObject measures a message, a content part, a tool call or an item of the responses dialect. One object
// holds at most one piece of media, in whatever field it stands.
func (t *TextSize) addObject(v value) {
	media := false
	for m := range v.members() {
		if !m.val.present() {
			continue
		}
		switch roleOf(m.key) {
		case partIgnored:
		case partMedia:
			media = true
		case partArguments:
			t.addArguments(m.val)
		case partSource:
			media = t.addSource(m.val) || media
		default:
			t.addContent(m.val)
		}
	}
	if media {
		t.Media++
	}
}

// addArguments measures what a model called a tool with: a string of JSON (OpenAI) or an object (Anthropic).
func (t *TextSize) addArguments(v value) {
	if v.isString() {
		t.addString(v)
		return
	}
	t.Code += compactLen(v)
}

// addSource measures the source of an Anthropic image or document and reports whether it is media.
func (t *TextSize) addSource(v value) (media bool) {
	switch kind := v.get("type"); {
	case kind.is("text"):
		t.addString(v.get("data"))
	case kind.is("content"):
		t.addContent(v.get("content"))
	default:
		return true
	}
	return false
}

type partRole int

const (
	partText partRole = iota
	partIgnored
	partMedia
	partArguments
	partSource
)

// partRoles says what the members of messages and parts are; what is not listed counts as text.
var partRoles = map[string]partRole{
	"type": partIgnored, "role": partIgnored, "id": partIgnored, "call_id": partIgnored, "tool_call_id": partIgnored,
	"tool_use_id": partIgnored, "cache_control": partIgnored, "detail": partIgnored, "status": partIgnored,
	"signature": partIgnored, "encrypted_content": partIgnored, "is_error": partIgnored, "index": partIgnored,
	"media_type": partIgnored, "format": partIgnored, "filename": partIgnored, "uuid": partIgnored, "phase": partIgnored,
	"annotations": partIgnored, "logprobs": partIgnored, "citations": partIgnored,

	"image_url": partMedia, "input_audio": partMedia, "audio_url": partMedia, "video_url": partMedia, "image": partMedia,
	"audio": partMedia, "video": partMedia, "file": partMedia, "file_id": partMedia, "file_data": partMedia,
	"file_url": partMedia, "image_embeds": partMedia, "audio_embeds": partMedia, "image_pil": partMedia,

	"arguments": partArguments, "input": partArguments,
	"source": partSource,
}

func roleOf(key value) partRole {
	in := key.raw[1 : len(key.raw)-1]
	if role, ok := partRoles[string(in)]; ok || bytes.IndexByte(in, '\\') < 0 {
		return role
	}
	return partRoles[key.text()]
}

// addAny measures every string of a value whose meaning is not known.
func (t *TextSize) addAny(v value) {
	switch v.kind() {
	case '"':
		t.addPlain(v)
	case '[':
		for item := range v.items() {
			t.addAny(item)
		}
	case '{':
		for m := range v.members() {
			t.addAny(m.val)
		}
	}
}

// batch collects the prompts of one call.
type batch struct {
	total, largest TextSize
	prompts        int
}

func (b *batch) add(t TextSize) {
	b.total.add(t)
	b.prompts++
	if b.prompts == 1 || t.weight() > b.largest.weight() {
		b.largest = t
	}
}

// addPrompts takes a prompt in every shape there is: a string, a list of strings, a list of token ids, a list
// of lists of token ids, and the objects that multimodal embedding models take.
func (b *batch) addPrompts(v value, param string) *Problem {
	var one TextSize
	switch {
	case v.isString():
		one.addPlain(v)
		b.add(one)
		return nil
	case v.isObject():
		one.addContent(v)
		b.add(one)
		return nil
	case !v.isArray():
		return bad(param, "The field %q must be a string or a list, but it is %s.", param, typeName(v))
	}
	n := 0
	for item := range v.items() {
		if n == 0 && item.isNumber() {
			return b.addIDs(v, param)
		}
		if p := b.addItem(item, fmt.Sprintf("%s[%d]", param, n)); p != nil {
			return p
		}
		n++
	}
	if n == 0 {
		return bad(param, "The field %q is an empty list; send at least one prompt.", param)
	}
	return nil
}

func (b *batch) addItem(item value, place string) *Problem {
	var one TextSize
	switch item.kind() {
	case '"':
		one.addPlain(item)
	case '{':
		one.addContent(item)
	case '[':
		return b.addIDs(item, place)
	default:
		return bad(place, "The field %q must be a string or a list of token ids, but it is %s.", place, typeName(item))
	}
	b.add(one)
	return nil
}

// addIDs takes one prompt that is given as token ids: its cost is known exactly.
func (b *batch) addIDs(v value, place string) *Problem {
	n := 0
	for item := range v.items() {
		if !isTokenID(item) {
			place = fmt.Sprintf("%s[%d]", place, n)
			return bad(place, "The field %q must be a token id (a whole number from 0 up), but it is %s.", place, typeName(item))
		}
		n++
	}
	if n == 0 {
		return bad(place, "The field %q is an empty list; send at least one token.", place)
	}
	b.add(TextSize{TokenIDs: n})
	return nil
}

func isTokenID(v value) bool {
	for _, c := range v.raw {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(v.raw) <= 10
}

// addEmbeds takes prompts that are already embedded: their length in tokens cannot be read here, so each counts
// as one opaque part.
func (b *batch) addEmbeds(v value) *Problem {
	switch {
	case v.isString():
		b.add(TextSize{Media: 1})
	case v.isArray():
		for item := range v.items() {
			if !item.isString() {
				return bad("prompt_embeds", `The field "prompt_embeds" must hold strings only, but an item is %s.`, typeName(item))
			}
			b.add(TextSize{Media: 1})
		}
	default:
		return bad("prompt_embeds", `The field "prompt_embeds" must be a string or a list of strings, but it is %s.`, typeName(v))
	}
	return nil
}

// typeName names the JSON type of a value without showing it.
func typeName(v value) string {
	switch v.kind() {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case 0:
		return "missing"
	}
	return "a number"
}
