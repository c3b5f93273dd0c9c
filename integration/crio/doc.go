// Package crio has no code outside its tests. CRI-O itself can't be had as a Go
// module or in Debian, so its CNI library is driven as CRI-O drives it: an ADD
// is followed by a CHECK; a pod gets one DEL, of a minute for all its networks
// and by the configuration of its ADD, and whatever comes of it every later
// Stop answers OK without another; and at its start comes a GC, whose list is
// null when there are no pods. What CRI-O does around CNI is left out. It needs
// root: see make integration, and make results for the complete table.
package crio
