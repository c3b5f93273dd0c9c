//go:build kubernetes

package kubernetes_test

// The document's words. Its figures are the run's.

const intro = `# whereabouts, bare and guarded

Written by ` + "`make integration-kubernetes`" + ` on %s; nothing in it is by hand.
ipam-guard %s, whereabouts %s, kube-apiserver %s and etcd %s on loopback, with a proxy in between that makes
the faults; %s, %d cores. The whole run took %v.

Each line is a node of its own: a pod is attached, the fault begins, one DEL is called as a main plugin would call it.
Then the API is well again, the caller repeats what its runtime repeats, the pod's network namespace goes, and other pods
come and go, a second apart, as many as records were pending.

- *guard*: none, or where it is and its ` + "`policy.onError`" + `. All else is as it comes: three attempts, 20 s for each, 50 s
  for the call.
- *caller*: kubelet calls a DEL again until it is told that it worked (here: three times at the most); CRI-O and podman
  never do.
- *requests*, *runs*: what the API was sent during the first DEL, and how often whereabouts ran.
- *left*: addresses in whereabouts' pools, and its overlapping reservations (a second mark on an address, by which it keeps
  ranges that overlap apart).
`

const faultsText = `
## One DEL, one fault

whereabouts' DEL throws its errors away (whereabouts #119), so a bare caller is told success whatever happens, and nobody
asks again.

`

const messagesText = `
## What the callers were told

Where the answer was an error, for the first line of each fault that has one. Code 11 is the specification's "try again
later"; whereabouts itself has said success each time, or was stopped at its timeout.

`

const stormText = `
## A storm

%d pods end at once, while each request takes %s more. A bare DEL waits for whereabouts' lease against all others, its
minute runs out, and it says success. Guarded, one runs at a time. kubelet waits 10 to 15 s before it repeats. When all
callers have had their answer the API is fast again, and one more pod comes and goes each second until no record is
pending.

`

const limitText = `
## The limit: overlapping reservations

Two faults leave an overlapping reservation behind, guarded or not: the pool's PATCH is carried out but its answer never
arrives, and the reservation's DELETE, which comes after the PATCH, fails. The address is out of the pool then. A second
DEL finds no allocation, and whereabouts knows of the reservation only by the allocation, so it does nothing and says that
all is well; the guard believes it, and with reason: the pool's address is free.

What is lost: no other pod gets that address as long as the reservation is there (whereabouts skips it). A pod of the same
name and namespace may get it, and its DEL then removes the reservation. whereabouts' own reconciler is made for such
reservations.

`

const limitEnd = `
So nothing that could be laid over a DEL (` + "`confirm.set`" + `) makes whereabouts do it. What does is an ADD in the name of the
pod that is gone, held to that one address, and its DEL. A guard could do that by itself, since its record has the address:
but then it would allocate on its own account during a DEL, for a delegate whose inner workings it would have to know. It
doesn't.
`
