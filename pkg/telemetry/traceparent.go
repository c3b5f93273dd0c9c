package telemetry

import "strings"

// TraceID returns the trace id of a W3C traceparent (Trace Context, section
// 3.2), "" if that is not valid. Of versions after 00 only the part that is
// promised to stay is read.
func TraceID(traceparent string) string {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(traceparent) < length {
		return ""
	}
	head, rest := traceparent[:length], traceparent[length:]
	version, trace, parent, flags := head[:2], head[3:35], head[36:52], head[53:]
	switch {
	case head[2] != '-' || head[35] != '-' || head[52] != '-',
		!isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags),
		version == "ff",
		version == "00" && rest != "",
		rest != "" && rest[0] != '-',
		isZero(trace) || isZero(parent):
		return ""
	}
	return trace
}

func isHex(s string) bool  { return strings.Trim(s, "0123456789abcdef") == "" }
func isZero(s string) bool { return strings.Trim(s, "0") == "" }
