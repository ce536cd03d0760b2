package dialect

import "fmt"

// readPrompt measures what the model will read, by operation.
func readPrompt(f *Facts, top fields) *Problem {
	var b batch
	var p *Problem
	switch f.Endpoint.Kind {
	case KindChat:
		p = readChat(f, top, &b)
	case KindMessages, KindCountTokens:
		p = readChat(f, top, &b)
	case KindCompletions:
		p = readCompletion(top, &b)
	case KindResponses:
		p = readResponses(f, top, &b)
	case KindEmbeddings, KindPooling, KindClassify:
		p = readInput(f, top, &b)
	case KindRerank, KindScore:
		p = readPairs(f.Endpoint.Kind, top, &b)
	case KindTokenize:
		p = readAnyShape(f, top, &b)
	case KindDetokenize:
		p = readDetokenize(top, &b)
	case KindAudio:
		p = readSpeech(top, &b)
	case KindAdmit:
		p = readAnyShape(f, top, &b)
	default:
		readUnknown(top, &b)
	}
	if p != nil {
		return p
	}
	f.Text, f.LargestText, f.Prompts = b.total, b.largest, max(1, b.prompts)
	return nil
}

// readChat reads the messages of chat completions and of Anthropic messages, with their system prompt and tools.
func readChat(f *Facts, top fields, b *batch) *Problem {
	var t TextSize
	if v := top.get("system"); v.present() && f.Endpoint.Kind != KindChat {
		t.Messages++
		t.addContent(v)
	}
	if p := addMessages(&t, top.get("messages")); p != nil {
		return p
	}
	if p := addTools(f, &t, top); p != nil {
		return p
	}
	b.add(t)
	return nil
}

func addMessages(t *TextSize, v value) *Problem {
	if !v.present() {
		return bad("messages", `The field "messages" is missing; send a list of messages.`)
	}
	if !v.isArray() {
		return bad("messages", `The field "messages" must be a list, but it is %s.`, typeName(v))
	}
	n := 0
	for m := range v.items() {
		if !m.isObject() {
			place := fmt.Sprintf("messages[%d]", n)
			return bad(place, "The field %q must be an object with a role, but it is %s.", place, typeName(m))
		}
		t.Messages++
		t.addObject(m)
		n++
	}
	if n == 0 {
		return bad("messages", `The field "messages" is an empty list; send at least one message.`)
	}
	return nil
}

func addTools(f *Facts, t *TextSize, top fields) *Problem {
	for _, name := range []string{"tools", "functions"} {
		v := top.get(name)
		if !v.present() {
			continue
		}
		if !v.isArray() {
			return bad(name, "The field %q must be a list, but it is %s.", name, typeName(v))
		}
		for tool := range v.items() {
			f.Tools++
			t.ToolSchema += compactLen(tool)
		}
	}
	return nil
}

func readCompletion(top fields, b *batch) *Problem {
	prompt, embeds := top.get("prompt"), top.get("prompt_embeds")
	if !prompt.present() && !embeds.present() {
		return bad("prompt", `The field "prompt" is missing; send a string, a list of strings or token ids.`)
	}
	if prompt.isObject() {
		return bad("prompt", `The field "prompt" must be a string or a list, but it is an object.`)
	}
	if prompt.present() {
		if p := b.addPrompts(prompt, "prompt"); p != nil {
			return p
		}
	}
	if embeds.present() {
		return b.addEmbeds(embeds)
	}
	return nil
}

// readResponses reads instructions and input. What a previous_response_id brings along is stored in the engine
// and cannot be measured here.
func readResponses(f *Facts, top fields, b *batch) *Problem {
	var t TextSize
	if v := top.get("instructions"); v.present() {
		t.Messages++
		t.addContent(v)
	}
	switch input := top.get("input"); {
	case !input.present():
		if !top.get("prompt").isObject() {
			return bad("input", `The field "input" is missing; send a string or a list of items.`)
		}
		t.addAny(top.get("prompt"))
	case input.isString():
		t.Messages++
		t.addPlain(input)
	case input.isArray():
		for item := range input.items() {
			if !item.isObject() && !item.isString() {
				return bad("input", `The field "input" must hold strings and objects only, but an item is %s.`, typeName(item))
			}
			t.Messages++
			t.addContent(item)
		}
	default:
		return bad("input", `The field "input" must be a string or a list, but it is %s.`, typeName(input))
	}
	if p := addTools(f, &t, top); p != nil {
		return p
	}
	b.add(t)
	return nil
}

// readInput reads the input of embeddings, pooling and classification, which vLLM also takes as messages.
func readInput(f *Facts, top fields, b *batch) *Problem {
	switch {
	case top.get("input").present():
		return b.addPrompts(top.get("input"), "input")
	case top.get("messages").present():
		return readChat(f, top, b)
	case f.Endpoint.Kind != KindEmbeddings && top.get("data").present():
		var t TextSize
		t.addAny(top.get("data"))
		b.add(t)
		return nil
	}
	return bad("input", `The field "input" is missing; send a string, a list of strings or token ids.`)
}

// pairFields are the names under which engines take the two sides of a comparison, first found first served.
var pairFields = [2][]string{
	{"query", "queries", "text_1", "data_1"},
	{"documents", "items", "text_2", "data_2"},
}

// readPairs reads rerank and score: every document is one prompt, and the query stands in each of them.
func readPairs(k Kind, top fields, b *batch) *Problem {
	var sides [2][]TextSize
	for i, names := range pairFields {
		for _, name := range names {
			if v := top.get(name); v.present() {
				sides[i] = sizesOf(v)
				break
			}
		}
		if sides[i] == nil {
			name := names[0]
			if k == KindScore {
				name = names[2]
			}
			return bad(name, "The field %q is missing; send what is to be compared.", name)
		}
	}
	queries, documents := sides[0], sides[1]
	for i := range max(len(queries), len(documents)) {
		t := queries[min(i, len(queries)-1)]
		t.add(documents[min(i, len(documents)-1)])
		b.add(t)
	}
	return nil
}

// sizesOf measures each text of a list, or the one text of anything else; never an empty list.
func sizesOf(v value) []TextSize {
	if !v.isArray() || v.raw[skipSpace(v.raw, 1)] == ']' {
		var t TextSize
		t.addContent(v)
		return []TextSize{t}
	}
	var ids batch
	if first := v.raw[skipSpace(v.raw, 1)]; '0' <= first && first <= '9' && ids.addIDs(v, "") == nil {
		return []TextSize{ids.total}
	}
	var out []TextSize
	for item := range v.items() {
		var t TextSize
		t.addContent(item)
		out = append(out, t)
	}
	return out
}

// readAnyShape reads a body that may be any of the generating dialects: tokenize and the dry question.
func readAnyShape(f *Facts, top fields, b *batch) *Problem {
	switch {
	case top.get("messages").present():
		return readChat(f, top, b)
	case top.get("prompt").present():
		return b.addPrompts(top.get("prompt"), "prompt")
	case top.get("input").present() && f.Endpoint.Kind == KindAdmit:
		return readResponses(f, top, b)
	}
	return bad("messages", `The body holds neither "messages" nor "prompt"; send one of them.`)
}

func readDetokenize(top fields, b *batch) *Problem {
	v := top.get("tokens")
	if !v.isArray() {
		return bad("tokens", `The field "tokens" must be a list of token ids, but it is %s.`, typeName(v))
	}
	b.add(TextSize{TokenIDs: v.len()})
	return nil
}

func readSpeech(top fields, b *batch) *Problem {
	v := top.get("input")
	if !v.isString() {
		return bad("input", `The field "input" must be a string, but it is %s.`, typeName(v))
	}
	return b.addPrompts(v, "input")
}

// readUnknown measures every string of a body that has no reader.
func readUnknown(top fields, b *batch) {
	var t TextSize
	t.addAny(top.get(wholeBody))
	b.add(t)
}
