package main

import (
	"archive/tar"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func buildInfo(t *testing.T, file string) *buildinfo.BuildInfo {
	t.Helper()
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// testImages writes images of a release and of two samples for two architectures.
func testImages(t *testing.T, r *release, out string) {
	t.Helper()
	sample := filepath.Join(t.TempDir(), "sample")
	if err := os.WriteFile(sample, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	set := imageSet{release: r}
	for _, s := range samples {
		set.samples = append(set.samples, program{s.name, sample, s.title})
	}
	other := imageSet{release: new(release), samples: set.samples}
	*other.release = *r
	other.program = sample
	other.arch = map[string]string{"amd64": "arm64", "arm64": "amd64"}[r.arch]
	if err := writeImages(out, []imageSet{set, other}); err != nil {
		t.Fatal(err)
	}
}

// layoutImages returns the images of a layout for an architecture, by their names.
func layoutImages(t *testing.T, out, arch string) map[string]v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(out, layoutFolder))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		name := d.Annotations["org.opencontainers.image.ref.name"]
		platforms, err := index.ImageIndex(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		all, err := platforms.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all.Manifests {
			if p.Platform.OS == "linux" && p.Platform.Architecture == arch {
				if images[name], err = platforms.Image(p.Digest); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return images
}

// unpack extracts an image into a folder, and returns its entries as mode, user and path.
func unpack(t *testing.T, image v1.Image, dir string) (entries []string) {
	t.Helper()
	layers := mutate.Extract(image)
	defer layers.Close()
	for r := tar.NewReader(layers); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		} else if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf("%o %d:%d %s", h.Mode, h.Uid, h.Gid, h.Name))
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, h.FileInfo().Mode())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The layout has each image for each platform, and is the same each time, like the archives
// for docker load.
func TestImagesAreReproducible(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	r.program = filepath.Join(root, "go.sum")
	var sums []string
	for range 2 {
		out := t.TempDir()
		testImages(t, r, out)
		if err := writeChecksums(out); err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(read(t, out, "SHA256SUMS")))
		for _, arch := range []string{"amd64", "arm64"} {
			if n := len(layoutImages(t, out, arch)); n != 3 {
				t.Errorf("%d images for %s", n, arch)
			}
		}
	}
	if sums[0] != sums[1] {
		t.Errorf("%s\n%s", sums[0], sums[1])
	}
	if n := strings.Count(sums[0], "\n"); n != 7 {
		t.Errorf("%d checksums:\n%s", n, sums[0])
	}
}

// An image holds the program, an unprivileged user, the owner of the folders of volumes, roots of
// trust and licences; it runs the program as that user, and the program answers a health check.
func TestImage(t *testing.T) {
	t.Parallel()
	out, rootfs := t.TempDir(), t.TempDir()
	testImages(t, testRelease(t), out)
	image := layoutImages(t, out, runtime.GOARCH)["portico:1.2.3"]
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/portico"}) || c.Cmd != nil || len(c.Volumes) != 1 {
		t.Errorf("configuration %+v", c)
	}
	if c.Labels["org.opencontainers.image.version"] != "1.2.3" || c.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" || len(c.Labels["org.opencontainers.image.revision"]) != 40 {
		t.Errorf("labels %v", c.Labels)
	}
	entries := unpack(t, image, rootfs)
	slices.Sort(entries)
	if want := []string{
		"644 0:0 etc/group", "644 0:0 etc/passwd", "644 0:0 etc/ssl/certs/ca-certificates.crt",
		"644 0:0 licenses/LICENSE", "644 0:0 licenses/NOTICE", "644 0:0 licenses/THIRD_PARTY_LICENSES",
		"700 65532:65532 etc/portico/pki", "700 65532:65532 var/lib/portico",
		"755 0:0 etc", "755 0:0 etc/portico", "755 0:0 etc/ssl", "755 0:0 etc/ssl/certs", "755 0:0 licenses", "755 0:0 portico", "755 0:0 var", "755 0:0 var/lib",
	}; !slices.Equal(entries, want) {
		t.Errorf("entries %q", entries)
	}
	if n := strings.Count(string(read(t, rootfs, "etc/ssl/certs/ca-certificates.crt")), "BEGIN CERTIFICATE"); n < 100 {
		t.Errorf("%d roots", n)
	}
	if text, err := exec.Command(filepath.Join(rootfs, c.Entrypoint[0]), "probe", "http://127.0.0.1:1/readyz").CombinedOutput(); err == nil || !strings.Contains(string(text), "refused") {
		t.Errorf("probe: %v: %s", err, text)
	}

	// The archive for docker load has the same image.
	loaded, err := tarball.ImageFromPath(filepath.Join(out, "portico-image-1.2.3-linux-"+runtime.GOARCH+".tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := loaded.ConfigName(); err != nil || a != b {
		t.Errorf("%v and %v, %v", a, b, err)
	}
	etcd, err := layoutImages(t, out, runtime.GOARCH)["portico-etcd:1.2.3"].ConfigFile()
	if err != nil || !slices.Equal(etcd.Config.Entrypoint, []string{"/portico-etcd"}) || len(etcd.RootFS.DiffIDs) != 3 || etcd.RootFS.DiffIDs[1] != config.RootFS.DiffIDs[1] {
		text, _ := json.Marshal(etcd)
		t.Errorf("etcd: %v: %s", err, text)
	}
}
