package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// record is one record, for programs.
type record struct {
	Name       string   `json:"name"`
	Network    string   `json:"network"`
	Container  string   `json:"container"`
	IfName     string   `json:"ifname"`
	Delegate   string   `json:"delegate"`
	State      string   `json:"state"` // adding, attached, releasing, unreadable, newer
	Owed       string   `json:"owed,omitempty"`
	Next       string   `json:"next"` // what it waits for
	Releasable bool     `json:"releasable"`
	Busy       bool     `json:"busy"`
	Netns      string   `json:"netns,omitempty"`
	NetnsGone  bool     `json:"netnsGone"`
	Addresses  []string `json:"addresses,omitempty"`
	Created    string   `json:"created,omitempty"`
	Tries      int      `json:"tries"`
	LastError  string   `json:"lastError,omitempty"`
	StateDir   string   `json:"stateDir"`
	*detail
}

// detail is what only the look at one record shows.
type detail struct {
	Netconf string `json:"netconf"` // what the delegate got, and gets
	Guard   string `json:"guard,omitempty"`
	Binary  string `json:"binary"`
	CNIPath string `json:"cniPath"`
	CNIArgs string `json:"cniArgs"`
	Result  string `json:"result,omitempty"`
}

func (h held) item() record {
	return record{
		Name: h.name(), Network: h.Network, Container: h.Container, IfName: h.IfName, Delegate: h.Delegate,
		State: h.state(), Owed: string(h.Owed), Next: h.next(), Releasable: h.Releasable, Busy: h.Busy,
		Netns: h.Netns.Path, NetnsGone: h.NetnsGone, Addresses: h.addresses(), Created: h.Created,
		Tries: h.Tries, LastError: h.LastError, StateDir: h.dir,
	}
}

func (h held) full() record {
	r := h.item()
	r.detail = &detail{
		Netconf: string(h.Netconf), Guard: string(h.Guard), Binary: h.Binary,
		CNIPath: h.Facts.Path, CNIArgs: h.Args, Result: string(h.Result),
	}
	return r
}

type pendingOptions struct {
	recordOptions
	network string
	all     bool
}

func pendingCommand(t *tool) *cobra.Command {
	var o pendingOptions
	cmd := &cobra.Command{
		Use:   "pending [RECORD]",
		Short: "List what must still be released, or show one record",
		Long: `pending lists the records of attachments that must still be released, those whose
network namespace is gone, and those that can't be read; the oldest first. With
--all also those that live. With a RECORD it shows all that is in that one.

A RECORD is named CONTAINER/IFNAME@NETWORK@DELEGATE, as its file is; CONTAINER or
the beginning of it will do where only one record is meant.`,
		Example: `  ipam-guardctl pending
  ipam-guardctl pending --network pods --output json
  ipam-guardctl pending 3f2a91`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && (o.all || o.network != "") {
				return usagef("%s: leave out --all and --network, one record is shown", args[0])
			}
			return t.pending(o, args)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.network, "network", "", "only those of the network of this `NAME`")
	cmd.Flags().BoolVar(&o.all, "all", false, "also those that live")
	return cmd
}

func (t *tool) pending(o pendingOptions, args []string) error {
	all, unseen := t.records(o.recordOptions, false, args...)
	if len(args) > 0 {
		h, err := find(all, args[0])
		if err != nil {
			return firstOf(unseen, err)
		}
		return t.showRecord(h.full())
	}
	var items []record
	for _, h := range all {
		if (o.all || h.matters()) && (o.network == "" || h.Network == o.network) {
			items = append(items, h.item())
		}
	}
	if err := t.showRecords(items, len(all)); err != nil {
		return err
	}
	return unseen
}

// matters: it is to be released, or somebody should look at it.
func (h held) matters() bool { return h.Pending() || h.Unreadable || h.NetnsGone }

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tool) showRecords(items []record, all int) error {
	return printItems(t, "Record", items, func(w io.Writer) {
		if len(items) == 0 {
			fmt.Fprintf(w, "nothing is pending; %s in all\n", count(all, "record"))
			return
		}
		rows := [][]string{{"record", "state", "addresses", "tries", "next", "last error"}}
		for _, r := range items {
			rows = append(rows, []string{
				oneLine(r.Name), r.State, orNone(oneLine(strings.Join(r.Addresses, " "))), strconv.Itoa(r.Tries), r.Next, orNone(oneLine(r.LastError)),
			})
		}
		columns(w, rows)
	})
}

func (t *tool) showRecord(r record) error {
	return printItems(t, "Record", []record{r}, func(w io.Writer) {
		rows := [][]string{}
		for _, row := range [][]string{
			{"record", r.Name},
			{"state", r.State},
			{"owed", r.Owed},
			{"next", r.Next},
			{"addresses", strings.Join(r.Addresses, " ")},
			{"netns", r.Netns + gone(r.NetnsGone)},
			{"created", r.Created},
			{"tries", strconv.Itoa(r.Tries)},
			{"last error", r.LastError},
			{"delegate", r.Binary},
			{"CNI_PATH", r.CNIPath},
			{"CNI_ARGS", r.CNIArgs},
			{"netconf", r.Netconf},
			{"guard", r.Guard},
			{"result", r.Result},
			{"folder", r.StateDir},
		} {
			if row[1] != "" {
				rows = append(rows, []string{row[0], strings.TrimSpace(printable(row[1]))})
			}
		}
		columns(w, rows)
	})
}

func gone(is bool) string {
	if is {
		return " (gone)"
	}
	return ""
}
