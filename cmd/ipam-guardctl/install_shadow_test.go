package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A guard under an IPAM plugin's name does nothing where no runtime looks for it.
// That is said of each runtime, with what to set, and the exit status is 3.
func TestShadowWhereTheRuntimeLooks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	early, cni := n.path("early"), n.path("cni")
	const containerd, crio = "etc/containerd/config.toml", "etc/crio/crio.conf"
	list := `["` + early + `", "` + cni + `"]`
	tests := []struct {
		name, file, text string
		args             []string
		status           int
		says             []string
	}{
		{"one folder", containerd, `bin_dir = "` + cni + `"`, nil, 3, []string{
			"containerd looks for plugins in " + cni + ", and not in " + early + ": the guard as whereabouts is not run there",
			"in /etc/containerd/config.toml: [plugins.'io.containerd.cri.v1.runtime'.cni] bin_dirs = " + list, "2.1 and later",
		}},
		{"the other order", containerd, `bin_dirs = ["` + cni + `", "` + early + `/"]`, nil, 3, []string{"finds " + cni + "/whereabouts first", "bin_dirs = " + list}},
		{"CRI-O", crio, `plugin_dirs = ["` + cni + `"]`, nil, 3, []string{"CRI-O looks for plugins in " + cni, "[crio.network] plugin_dirs = " + list}},
		{"a dry run", containerd, `bin_dir = "` + cni + `"`, []string{"--dry-run"}, 3, []string{"containerd looks for plugins in " + cni}},
		{"right", containerd, `bin_dirs = ["` + early + `/", "` + cni + `"]`, nil, 0, nil},
		{"not asked", containerd, `bin_dir = "` + cni + `"`, []string{"--no-probe"}, 0, nil},
		{"no runtime", "etc/none", "", nil, 0, []string{"no runtime is seen here: the one that starts the pods must look for plugins in " + early}},
	}
	for _, tt := range tests {
		host := node{t.TempDir()}
		host.write(t, "run/none", "")
		host.write(t, "usr-share/none", "")
		host.write(t, tt.file, tt.text)
		out, status := n.under(t, host, append([]string{"install", "--shadow", "whereabouts", "--cni-path", early + ":" + cni}, tt.args...)...)
		if status != tt.status || !strings.Contains(out, early+"/whereabouts") {
			t.Errorf("%s: exit status %d, want %d\n%s", tt.name, status, tt.status, out)
		}
		for _, want := range tt.says {
			if !strings.Contains(out, want) {
				t.Errorf("%s: want %q in\n%s", tt.name, want, out)
			}
		}
		if tt.says == nil && strings.Contains(out, "ipam-guardctl:") {
			t.Errorf("%s: nothing is to be said\n%s", tt.name, out)
		}
	}
}

// under runs the tool where the folders /run, /etc and /usr/share are another
// machine's.
func (n node) under(t *testing.T, host node, args ...string) (out string, status int) {
	t.Helper()
	const script = `mount --bind "$1/run" /run && mount --bind "$1/usr-share" /usr/share && mount --bind "$1/etc" /etc || exit 100
tool=$2; shift 2; exec "$tool" "$@"`
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-rm"
	}
	cmd := exec.Command("unshare", append([]string{flags, "sh", "-c", script, "sh", host.dir, n.path("tool", "ipam-guardctl")}, args...)...)
	text, err := cmd.CombinedOutput()
	if status = cmd.ProcessState.ExitCode(); status < 0 || status >= 100 {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text), status
}
