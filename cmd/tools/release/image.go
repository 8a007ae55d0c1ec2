package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// layoutFolder is the OCI image layout of a release.
	layoutFolder = "oci"
	// userID is the number of the user and of the group that images run as.
	userID = 65532
)

// program is a file of an image that makes an image of its own.
type program struct{ name, file, title string }

// samples are the programs that deploy/container/compose.yaml runs beside portico.
var samples = []struct{ name, title, pkg string }{
	{"portico-etcd", "etcd, with portico for its health check", "go.etcd.io/etcd/server/v3"},
	{"portico-restserver", "A sample REST server, with portico for its health check", "./restserver"},
}

// buildSamples builds the samples. They are packages of the module cmd/tools.
func buildSamples(src *source, dir string, p platform) (all []program, err error) {
	for _, s := range samples {
		file, err := src.build(dir, p, s.name, filepath.Join("cmd", "tools"), s.pkg)
		if err != nil {
			return nil, err
		}
		all = append(all, program{s.name, file, s.title})
	}
	return all, nil
}

// imageSet is what images of one platform are made of.
type imageSet struct {
	*release
	samples []program
}

// namedImage is an image of one platform.
type namedImage struct {
	name     string
	image    v1.Image
	platform v1.Platform
}

// writeImages writes the OCI layout, with an index of all platforms for each image, and
// each image of each platform as an archive for docker load.
func writeImages(out string, sets []imageSet) error {
	if len(sets) == 0 {
		return nil
	}
	var names []string
	indexes := map[string]v1.ImageIndex{}
	for _, set := range sets {
		images, err := set.images()
		if err != nil {
			return err
		}
		for _, i := range images {
			tag, err := name.NewTag(i.name + ":" + set.version)
			if err != nil {
				return err
			}
			file := fmt.Sprintf("%s-image-%s-%s-%s.tar", i.name, set.version, set.os, set.arch)
			if err := tarball.WriteToFile(filepath.Join(out, file), tag, i.image); err != nil {
				return err
			}
			index, ok := indexes[i.name]
			if !ok {
				names = append(names, i.name)
				index = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
			}
			indexes[i.name] = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: i.image, Descriptor: v1.Descriptor{Platform: &i.platform},
			})
		}
	}
	to, err := layout.Write(filepath.Join(out, layoutFolder), empty.Index)
	if err != nil {
		return err
	}
	for _, n := range names {
		// Programs that read layouts select an image by this annotation.
		err := to.AppendIndex(indexes[n], layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": n + ":" + sets[0].version,
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// images returns the image of portico, and one with one layer more for each sample.
func (s *imageSet) images() ([]namedImage, error) {
	at := v1.Platform{OS: s.os, Architecture: s.arch}
	files, err := layer(s.files(), s.release)
	if err != nil {
		return nil, err
	}
	portico, err := layer([]entry{{path: "portico", mode: 0o755, file: s.program}}, s.release)
	if err != nil {
		return nil, err
	}
	image, err := s.image("portico", "A Kubernetes-style endpoint in front of many API servers", files, portico)
	if err != nil {
		return nil, err
	}
	all := []namedImage{{"portico", image, at}}
	for _, p := range s.samples {
		more, err := layer([]entry{{path: p.name, mode: 0o755, file: p.file}}, s.release)
		if err != nil {
			return nil, err
		}
		image, err := s.image(p.name, p.title, files, portico, more)
		if err != nil {
			return nil, err
		}
		all = append(all, namedImage{p.name, image, at})
	}
	return all, nil
}

// files are those of every image: the user, roots of trust, licences, and the folders that
// volumes are mounted at. A new volume has the owner of the folder.
func (s *imageSet) files() []entry {
	return append([]entry{
		{path: "etc", mode: 0o755},
		{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\nportico:x:65532:65532:portico:/var/lib/portico:/sbin/nologin\n")},
		{path: "etc/group", mode: 0o644, data: []byte("root:x:0:\nportico:x:65532:\n")},
		{path: "etc/portico", mode: 0o755},
		{path: "etc/portico/pki", mode: 0o700, uid: userID},
		{path: "etc/ssl", mode: 0o755},
		{path: "etc/ssl/certs", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots()},
		{path: "licenses", mode: 0o755},
		{path: "var", mode: 0o755},
		{path: "var/lib", mode: 0o755},
		{path: "var/lib/portico", mode: 0o700, uid: userID},
	}, s.legal("licenses")...)
}

// roots returns Mozilla's certificate authorities for TLS, without those that it trusts
// within bounds that a file cannot express.
func roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}))
		}
	}
	return b.Bytes()
}

// layer makes a compressed layer.
func layer(entries []entry, r *release) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, entries, r.date); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// image makes an image that runs the file of its name in the root.
func (s *imageSet) image(name, title string, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = s.os, s.arch, v1.Time{Time: s.date}
	for i := range file.History {
		file.History[i] = v1.History{Created: file.Created, CreatedBy: "portico/cmd/tools/release"}
	}
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", userID, userID),
		Entrypoint: []string{"/" + name},
		WorkingDir: "/var/lib/portico",
		Env:        []string{"PATH=/", "HOME=/var/lib/portico"},
		Volumes:    map[string]struct{}{"/var/lib/portico": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    title,
			"org.opencontainers.image.version":  s.version,
			"org.opencontainers.image.revision": s.commit,
			"org.opencontainers.image.created":  s.date.Format("2006-01-02T15:04:05Z"),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, file)
}
