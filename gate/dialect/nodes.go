package dialect

// node names a place in a response that matters. One set serves all dialects: their names do not collide.
type node uint8

const (
	nodeNone node = iota
	nodeRoot
	nodeObject  // "object": "error" marks SGLang's flat error
	nodeType    // the event's type
	nodeModel   // a model name that can be rewritten
	nodeMessage // Anthropic's message, or a flat error's text
	nodeCode
	nodeDetail // FastAPI's own errors
	nodeDetailItem
	nodeError
	nodeErrorMessage
	nodeErrorCode
	nodeErrorType
	nodeResponse
	nodeResponseID
	nodeCreatedAt
	nodeStatus
	nodeIncomplete
	nodeReason
	nodeFingerprint // moves to the usage chunk when usage is asked for
	nodeChoices
	nodeChoice
	nodeIndex
	nodeFinish
	nodeDelta
	nodeEventDelta
	nodeStop
	nodeOutput
	nodeUsage
	nodePromptTokens
	nodeCompletionTokens
	nodeCacheRead
	nodeCacheCreation
	nodeTokenDetails
	nodeCachedTokens
)

// children says which members matter below a node.
var children = [nodeCachedTokens + 1]map[string]node{
	nodeRoot: {
		"object": nodeObject, "type": nodeType, "model": nodeModel, "message": nodeMessage, "code": nodeCode,
		"detail": nodeDetail, "error": nodeError, "response": nodeResponse, "status": nodeStatus,
		"incomplete_details": nodeIncomplete, "choices": nodeChoices, "delta": nodeEventDelta,
		"stop_reason": nodeStop, "usage": nodeUsage, "system_fingerprint": nodeFingerprint,
	},
	nodeDetailItem: {"msg": nodeErrorMessage},
	nodeError:      {"message": nodeErrorMessage, "code": nodeErrorCode, "type": nodeErrorType},
	nodeResponse: {
		"id": nodeResponseID, "created_at": nodeCreatedAt,
		"model": nodeModel, "error": nodeError, "status": nodeStatus, "incomplete_details": nodeIncomplete, "usage": nodeUsage,
	},
	nodeIncomplete: {"reason": nodeReason},
	nodeMessage:    {"model": nodeModel, "stop_reason": nodeStop, "usage": nodeUsage},
	nodeChoice: {
		"index": nodeIndex, "finish_reason": nodeFinish, "delta": nodeDelta, "message": nodeDelta, "text": nodeOutput,
	},
	nodeDelta: {
		"content": nodeOutput, "reasoning_content": nodeOutput, "reasoning": nodeOutput, "refusal": nodeOutput,
		"tool_calls": nodeOutput, "function_call": nodeOutput, "audio": nodeOutput,
	},
	nodeEventDelta: {"text": nodeOutput, "thinking": nodeOutput, "partial_json": nodeOutput, "stop_reason": nodeStop},
	nodeUsage: {
		"prompt_tokens": nodePromptTokens, "input_tokens": nodePromptTokens, "completion_tokens": nodeCompletionTokens,
		"output_tokens": nodeCompletionTokens, "cache_read_input_tokens": nodeCacheRead,
		"cache_creation_input_tokens": nodeCacheCreation, "prompt_tokens_details": nodeTokenDetails,
		"input_tokens_details": nodeTokenDetails,
	},
	nodeTokenDetails: {"cached_tokens": nodeCachedTokens},
}

// child returns the node of a member; nodeNone for a name that does not matter.
func (n node) child(name []byte) node {
	if n == nodeOutput {
		return nodeOutput
	}
	return children[n][string(name)]
}

// item returns the node of an array's items.
func (n node) item() node {
	switch n {
	case nodeChoices:
		return nodeChoice
	case nodeOutput:
		return nodeOutput
	case nodeError:
		return nodeError
	case nodeDetail:
		return nodeDetailItem
	}
	return nodeNone
}

// eventType is the kind of an event in the dialects that name their events.
type eventType uint8

const (
	eventOther eventType = iota
	eventPing
	eventError
	eventDelta     // carries output
	eventStart     // begins an Anthropic message; its output tokens are a placeholder
	eventUsage     // carries the final usage of an Anthropic message
	eventStop      // ends an Anthropic message
	eventCompleted // ends a response, whole or incomplete
	eventFailed
)

// eventTypeOf reads the name of an event.
func eventTypeOf(name []byte) eventType {
	switch string(name) {
	case "ping":
		return eventPing
	case "error":
		return eventError
	case "content_block_delta":
		return eventDelta
	case "message_start":
		return eventStart
	case "message_delta":
		return eventUsage
	case "message_stop":
		return eventStop
	case "response.completed", "response.incomplete":
		return eventCompleted
	case "response.failed", "response.cancelled":
		return eventFailed
	}
	const suffix = ".delta"
	if n := len(name) - len(suffix); n > 0 && string(name[n:]) == suffix {
		return eventDelta
	}
	return eventOther
}
