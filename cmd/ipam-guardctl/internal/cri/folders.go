package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Folders are where a runtime looks for its networks.
type Folders struct {
	ConfDir string
	BinDirs []string
}

// soon is how long a runtime may take to say how it is set up.
const soon = 3 * time.Second

// FoldersOf asks a runtime for the folders that it was started with. containerd
// tells its whole configuration, in words of its own that have changed: up to 2.0
// it has one folder of plugins, later several. CRI-O tells no folders.
func FoldersOf(ctx context.Context, socket string) (Folders, error) {
	conn, err := dial(socket)
	if err != nil {
		return Folders{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	status, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return Folders{}, err
	}
	var config struct {
		CNI struct {
			BinDir  string   `json:"binDir"`
			BinDirs []string `json:"binDirs"`
			ConfDir string   `json:"confDir"`
		} `json:"cni"`
	}
	if err := json.Unmarshal([]byte(status.Info["config"]), &config); err != nil {
		return Folders{}, fmt.Errorf("its configuration can't be read: %w", err)
	}
	f := Folders{config.CNI.ConfDir, config.CNI.BinDirs}
	if len(f.BinDirs) == 0 && config.CNI.BinDir != "" {
		f.BinDirs = []string{config.CNI.BinDir}
	}
	if f.ConfDir == "" || len(f.BinDirs) == 0 {
		return Folders{}, errors.New("it does not say which folders it uses")
	}
	return f, nil
}
