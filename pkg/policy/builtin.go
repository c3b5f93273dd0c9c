package policy

import "regexp"

// Builtin is a rule that holds where none of the administrator's matched. Its
// patterns are compiled only when something has failed: a pod that goes well
// doesn't pay for them.
type Builtin struct {
	Name    string
	Verbs   []string
	Kinds   []Kind // which kinds it is for
	Message string // RE2, on the outcome's message; "": any
	Unless  string // RE2: a message that matches this too is not meant
	Codes   []uint // or one of these codes, whatever the message
	Retry   bool
	Then    Then
	Why     string // the report behind it
}

// Texts that are proof of nothing: the delegate got nowhere, so it can't know.
const inconclusive = `(?i)\bdial\b|connection refused|permission denied|failed to find plugin|` +
	`no IP ranges specified|deadline exceeded|timed? ?out|pods? ".*" not found`

// What passes by itself: a server that is away, slow or changing its leader.
const transient = `(?i)connection refused|connection reset by peer|broken pipe|unexpected EOF|` +
	`deadline exceeded|i/o timeout|TLS handshake timeout|request timed out|` +
	`no route to host|network is unreachable|too many requests|` +
	`server is currently unable to handle the request|etcdserver: |text file busy`

var builtins = []Builtin{
	{
		Name: "already-released", Verbs: []string{"DEL"}, Kinds: []Kind{Error},
		Message: `Did not find reserved IP for container|datastore: unknown pod`, Unless: inconclusive,
		Then: Succeed,
		Why:  "whereabouts #44, #74, ovs-cni #276: an address that is gone failed every further DEL, and the pod stayed Terminating",
	},
	{
		Name: "exhausted", Verbs: []string{"ADD"}, Kinds: []Kind{Error},
		Message: `no IP addresses available|is not available in range set|Could not allocate IP in range`,
		Then:    Fail,
		Why:     "danm #256, azure-container-networking #2138: a pool is full while releases are pending; asking again at once changes nothing",
	},
	{
		Name: "transient", Kinds: []Kind{Timeout, Killed, Unconfirmed}, Retry: true,
		Why: "calico #11824, #10658, whereabouts #119: the delegate ran out of time, died, or swallowed its failure, and a second try would have done it",
	},
	{
		Name: "transient", Kinds: []Kind{Error}, Message: transient, Codes: []uint{11}, Retry: true,
		Why: "aws vpc-cni #2350, #2487: the agent was restarting and refused connections for seconds; code 11 is the specification's try again later",
	},
	{
		Name: "missing", Kinds: []Kind{Missing},
		Why: "containerd #8785, #8774, kubeadm #587: the binary is being replaced or gone; it will not be back within this call",
	},
	{
		Name: "lock", Kinds: []Kind{Lock},
		Why: "azure-container-networking #289, #186: the deadline went by in the queue; queueing again would only lengthen it",
	},
}

// Builtins returns the built-in rules in the order in which they are asked.
func Builtins() []Builtin { return append([]Builtin(nil), builtins...) }

// Builtin returns the built-in rule that decides about an outcome: two may have one
// name. There is none where a rule of the administrator decides, or no rule.
func (p Policy) Builtin(o Outcome) (b Builtin, ok bool) {
	if _, own := p.own(o); own || o.Kind == OK {
		return Builtin{}, false
	}
	return builtinFor(o)
}

func builtinFor(o Outcome) (b Builtin, ok bool) {
	for _, b := range builtins {
		if b.matches(o) {
			return b, true
		}
	}
	return Builtin{}, false
}

func (b Builtin) matches(o Outcome) bool {
	return oneOf(b.Verbs, o.Verb) && oneOf(b.Kinds, o.Kind) && b.says(o)
}

func (b Builtin) says(o Outcome) bool {
	if len(b.Codes) > 0 && oneOf(b.Codes, o.Code) {
		return true
	}
	if b.Message == "" {
		return len(b.Codes) == 0
	}
	return regexp.MustCompile(b.Message).MatchString(o.Message) &&
		(b.Unless == "" || !regexp.MustCompile(b.Unless).MatchString(o.Message))
}
