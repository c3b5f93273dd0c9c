package telemetry

import (
	"fmt"
	"time"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"
)

// What a delegate says has no limit of its own, a line that is written in one
// piece needs one.
const (
	maxField    = 4 << 10
	maxAttempts = 64
	maxWarnings = 32
)

// encode returns the line as JSON with its line end.
func encode(line Line) ([]byte, error) {
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{EncodeTime: zapcore.RFC3339NanoTimeEncoder})
	// EncodeEntry puts the level before the time. Inline keeps our order.
	buf, err := enc.EncodeEntry(zapcore.Entry{}, []zapcore.Field{
		{Type: zapcore.InlineMarshalerType, Interface: object(line)},
	})
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

type object Line

// MarshalLogObject writes the keys in the order in which people read them.
func (o object) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddTime("ts", o.Time.UTC())
	enc.AddString("level", o.Level.String())
	enc.AddString("msg", capped(o.Msg))
	enc.AddString("verb", capped(o.Verb))
	addText(enc, "network", o.Network)
	addText(enc, "container", o.Container)
	addText(enc, "ifname", o.IfName)
	addText(enc, "position", o.Position)
	addText(enc, "delegate", o.Delegate)
	addText(enc, "lock", o.Lock)
	addMillis(enc, "lock_wait_ms", o.LockWait)
	err := enc.AddArray("attempts", attempts(o.Attempts))
	if err == nil && len(o.Replays) > 0 {
		err = enc.AddArray("replays", texts(fewer(o.Replays)))
	}
	addText(enc, "verdict", o.Verdict)
	addText(enc, "rule", o.Rule)
	addMillis(enc, "total_ms", o.Total)
	addText(enc, "trace_id", o.TraceID)
	addText(enc, "version", o.Version)
	if err == nil && len(o.Warnings) > 0 {
		err = enc.AddArray("warnings", texts(fewer(o.Warnings)))
	}
	addText(enc, "error", o.Error)
	return err
}

// attempts keeps the last ones: they led to the verdict, and n tells how many
// came before.
type attempts []Attempt

func (as attempts) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, a := range as[max(0, len(as)-maxAttempts):] {
		if err := enc.AppendObject(attempt(a)); err != nil {
			return err
		}
	}
	return nil
}

type attempt Attempt

func (a attempt) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt("n", a.N)
	addText(enc, "verb", a.Verb)
	enc.AddString("kind", capped(a.Kind))
	enc.AddUint("code", a.Code)
	enc.AddInt("exit", a.Exit)
	addMillis(enc, "ms", a.Took)
	return nil
}

type texts []string

func (ts texts) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, t := range ts {
		enc.AppendString(capped(t))
	}
	return nil
}

func addText(enc zapcore.ObjectEncoder, key, text string) {
	if text != "" {
		enc.AddString(key, capped(text))
	}
}

func addMillis(enc zapcore.ObjectEncoder, key string, d time.Duration) {
	enc.AddInt64(key, d.Milliseconds())
}

// capped cuts a long text at a rune's start and marks the cut.
func capped(text string) string {
	if len(text) <= maxField {
		return text
	}
	cut := maxField
	for cut > maxField-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func fewer(warnings []string) []string {
	if len(warnings) <= maxWarnings {
		return warnings
	}
	more := fmt.Sprintf("and %d more", len(warnings)-maxWarnings)
	return append(warnings[:maxWarnings:maxWarnings], more)
}
