package telemetry_test

import (
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

func TestTraceID(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	const good = "00-" + trace + "-" + parent + "-01"
	for _, tt := range []struct{ name, traceparent, want string }{
		{"valid", good, trace},
		{"not sampled", "00-" + trace + "-" + parent + "-00", trace},
		{"unknown flags", "00-" + trace + "-" + parent + "-ff", trace},
		{"later version", "cc-" + trace + "-" + parent + "-01", trace},
		{"later version with more", "cc-" + trace + "-" + parent + "-01-what-the-future", trace},
		{"later version glued to more", "cc-" + trace + "-" + parent + "-01.what", ""},
		{"version 00 with more", good + "-what", ""},
		{"version 00 with a line end", good + "\n", ""},
		{"version ff", "ff-" + trace + "-" + parent + "-01", ""},
		{"version not hex", "0g-" + trace + "-" + parent + "-01", ""},
		{"empty", "", ""},
		{"short", good[:54], ""},
		{"upper case trace", "00-" + strings.ToUpper(trace) + "-" + parent + "-01", ""},
		{"upper case parent", "00-" + trace + "-" + strings.ToUpper(parent) + "-01", ""},
		{"upper case version", "CC-" + trace + "-" + parent + "-01", ""},
		{"upper case flags", "00-" + trace + "-" + parent + "-0A", ""},
		{"flags not hex", "00-" + trace + "-" + parent + "-0g", ""},
		{"not hex within", "00-" + trace[:15] + "x" + trace[16:] + "-" + parent + "-01", ""},
		{"zero trace", "00-" + strings.Repeat("0", 32) + "-" + parent + "-01", ""},
		{"zero parent", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01", ""},
		{"no dashes", strings.ReplaceAll(good, "-", "_"), ""},
		{"first dash amiss", "00_" + trace + "-" + parent + "-01", ""},
		{"second dash amiss", "00-" + trace + "_" + parent + "-01", ""},
		{"third dash amiss", "00-" + trace + "-" + parent + "_01", ""},
		{"white space", " " + good, ""},
	} {
		if got := telemetry.TraceID(tt.traceparent); got != tt.want {
			t.Errorf("%s: TraceID(%q) = %q, want %q", tt.name, tt.traceparent, got, tt.want)
		}
	}
}
