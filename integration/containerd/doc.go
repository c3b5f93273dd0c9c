// Package containerd has no code outside its tests: pods through containerd 1.6
// and 2, run, stopped and removed as kubelet does it, with the guard and
// without. It needs root, and fetches or builds the runtimes once: see make
// integration, and make results for the complete table.
package containerd
