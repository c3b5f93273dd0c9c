package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

func cniPathFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "cni-path", "/opt/cni/bin", "the runtime's CNI_PATH: the `FOLDERS` of its plugins, separated by colons")
}

// probeTimeout is far more than a VERSION takes.
const probeTimeout = 20 * time.Second

// probe asks a binary for the versions that it speaks: what a runtime would find
// out only at the next pod.
func probe(ctx context.Context, path, cniVersion string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := invoke.GetVersionInfo(ctx, path, nil)
	if err != nil {
		return fmt.Errorf("%s does not answer VERSION: %w", path, err)
	}
	if cniVersion != "" && !slices.Contains(info.SupportedVersions(), cniVersion) {
		return fmt.Errorf("%s does not speak cniVersion %s of the configuration, only %s",
			path, cniVersion, strings.Join(info.SupportedVersions(), ", "))
	}
	return nil
}

// probeInstalled asks the guard that a runtime would find.
func probeInstalled(ctx context.Context, cniPath, cniVersion string) error {
	path, err := delegate.Find(conflist.Guard, cniPath)
	if err != nil {
		return fmt.Errorf("no %s in %s: install it first (ipam-guardctl install does both), or say --cni-path; for a file that is not on a node, --no-probe",
			conflist.Guard, cniPath)
	}
	return probe(ctx, path, cniVersion)
}

// pluginPackage is what the guard is built from.
const pluginPackage = "github.com/ipam-guard/ipam-guard/cmd/ipam-guard"

// isGuard says whether a file is the guard, whatever it is called.
func isGuard(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Path == pluginPackage
}

// folders are those of a CNI_PATH.
func folders(cniPath string) ([]string, error) {
	dirs := slices.DeleteFunc(filepath.SplitList(cniPath), func(dir string) bool { return dir == "" })
	if len(dirs) == 0 {
		return nil, usagef("--cni-path is empty: want the folders of the runtime's plugins")
	}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return nil, usagef("--cni-path: %s is not an absolute path", dir)
		}
	}
	return dirs, nil
}

var errNotGuard = errors.New("is not ipam-guard")
