package chain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

// env returns an environment variable, "" without one. Of several the first
// counts, as for os.Getenv.
func (op *operation) env(name string) string {
	for _, kv := range op.Env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func (op *operation) readEnv() {
	op.verb = op.env("CNI_COMMAND")
	op.container = op.env("CNI_CONTAINERID")
	op.netns = op.env("CNI_NETNS")
	op.ifname = op.env("CNI_IFNAME")
	op.path = op.env("CNI_PATH")
}

// required says which variables a verb can't do without (specification,
// section 2). A DEL without CNI_PATH is let through: that its delegate can't be
// found is for the policy to judge.
func required(verb string) []string {
	switch verb {
	case "ADD", "CHECK":
		return []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}
	case "DEL":
		return []string{"CNI_CONTAINERID", "CNI_IFNAME"}
	case "GC", "STATUS":
		return []string{"CNI_PATH"}
	}
	return nil
}

// checkEnv refuses, with the reference skeleton's codes, an environment that
// names no attachment.
func (op *operation) checkEnv() *Error {
	names := required(op.verb)
	if names == nil {
		return newError(codeEnvironment, fmt.Sprintf("unknown CNI_COMMAND: %v", op.verb), "")
	}
	var missing []string
	for _, name := range names {
		if op.env(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return newError(codeEnvironment,
			fmt.Sprintf("required env variables [%s] missing", strings.Join(missing, ",")), "")
	}
	if !slices.Contains(names, "CNI_CONTAINERID") {
		return nil
	}
	if !legalName(op.container) {
		return newError(codeEnvironment, "invalid characters in CNI_CONTAINERID", op.container)
	}
	if bad := illegalInterface(op.ifname); bad != "" {
		return newError(codeEnvironment, "the interface name in CNI_IFNAME "+bad, op.ifname)
	}
	return nil
}

// environ is what the delegate gets: what the guard got, but for the verb where
// the guard chooses it, and the mark that a guard is above.
func (op *operation) environ(verb string) []string {
	env := make([]string, 0, len(op.Env)+2)
	for _, kv := range op.Env {
		if strings.HasPrefix(kv, hostlock.MarkEnv+"=") || verb != op.verb && strings.HasPrefix(kv, "CNI_COMMAND=") {
			continue
		}
		env = append(env, kv)
	}
	if verb != op.verb {
		env = append(env, "CNI_COMMAND="+verb)
	}
	return append(env, hostlock.MarkEnv+"="+hostlock.Mark())
}

// attachment names what the operation is about, for people.
func (op *operation) attachment() string {
	if op.container == "" {
		return fmt.Sprintf("network %s", op.conf.name)
	}
	return fmt.Sprintf("container %s (%s, network %s)", op.container, op.ifname, op.conf.name)
}
