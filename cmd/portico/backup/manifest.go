package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

const (
	// formatVersion is the version of the format of a backup. A portico reads its own and older
	// ones.
	formatVersion = 1

	manifestName = "manifest.json"
	snapshotName = "etcd/snapshot.db"
	pkiFolder    = "pki/"
	configName   = "config/portico.yaml"

	// maxSmall bounds the size of each part but the snapshot, in bytes: these are read into
	// memory.
	maxSmall = 4 << 20
)

// Manifest describes a backup. It is the first part of the file.
type Manifest struct {
	FormatVersion int `json:"formatVersion"`
	// PorticoVersion is that of the portico that made the backup.
	PorticoVersion string `json:"porticoVersion"`
	// Time is the point in time: every write that was acknowledged before is in the backup.
	Time time.Time `json:"time"`
	Etcd EtcdState `json:"etcd"`
	// Objects are the numbers of objects by resource.
	Objects map[string]int64 `json:"objects"`
	Parts   []Part           `json:"parts"`
}

// EtcdState is what a backup says of etcd.
type EtcdState struct {
	// Revision is the last one in the snapshot.
	Revision  int64  `json:"revision"`
	ClusterID string `json:"clusterID"`
	Version   string `json:"version"`
	Prefix    string `json:"prefix"`
}

// Part is a file of a backup.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// total returns the number of objects.
func (m *Manifest) total() (n int64) {
	for _, count := range m.Objects {
		n += count
	}
	return n
}

// has reports whether the backup has a file below a folder, or of a name.
func (m *Manifest) has(name string) bool {
	for _, p := range m.Parts {
		if p.Name == name || strings.HasSuffix(name, "/") && strings.HasPrefix(p.Name, name) {
			return true
		}
	}
	return false
}

var errNotBackup = errors.New("it is not a backup of portico")

// parseManifest reads a manifest and checks that this portico can restore what it describes.
func parseManifest(data []byte) (*Manifest, error) {
	var format struct {
		FormatVersion int `json:"formatVersion"`
	}
	if err := json.Unmarshal(data, &format); err != nil || format.FormatVersion < 1 {
		return nil, errNotBackup
	}
	if format.FormatVersion > formatVersion {
		return nil, fmt.Errorf("it has format version %d and this portico reads %d: use the portico that made it, or a newer one", format.FormatVersion, formatVersion)
	}
	m := new(Manifest)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(m); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	for i, p := range m.Parts {
		file := strings.TrimPrefix(p.Name, pkiFolder)
		known := p.Name == configName || file != p.Name && file == path.Base(file) && file != ".." && file != "."
		if (i == 0) != (p.Name == snapshotName) || i > 0 && (!known || p.Size > maxSmall) || p.Size < 0 {
			return nil, fmt.Errorf("its manifest has the part %q where there is none", p.Name)
		}
	}
	if len(m.Parts) == 0 {
		return nil, errors.New("its manifest has no parts")
	}
	return m, nil
}
