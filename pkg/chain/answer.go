package chain

import (
	"encoding/json"
	"regexp"
)

// encode writes the error document of the specification's section 5.
func encode(err *Error, version string) []byte {
	doc := struct {
		CNIVersion string `json:"cniVersion"`
		Error
	}{version, *err}
	text, merr := json.MarshalIndent(doc, "", "    ")
	if merr != nil { // strings and a number: can't be
		return []byte(`{"code": 999, "msg": "ipam-guard: the error could not be encoded"}`)
	}
	return append(text, '\n')
}

// reword makes sure that a DEL that really failed isn't read as done: containerd
// looks for these words in an error's text, whatever its code.
func reword(err *Error) *Error {
	out := *err
	out.Msg, out.Details = reworded(err.Msg), reworded(err.Details)
	return &out
}

func reworded(text string) string {
	text = regexp.MustCompile(`(?i)not found`).ReplaceAllString(text, "missing")
	return regexp.MustCompile(`(?i)no such file or directory`).ReplaceAllString(text, "path does not exist")
}
