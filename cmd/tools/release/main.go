// Release builds what a release of Portico consists of, from one commit: an archive and a
// list of components (SBOM) for each platform, container images, and their checksums. It
// needs Go and git. A second run with the same version of Go writes the same bytes.
//
// Usage, in cmd/tools:
//
//	go run ./release --out=../../dist
//	go run ./release --out=../../dist --platforms=linux/amd64 --samples
//
// docs/releasing.md describes the files.
//
// Runs in: releases, .ci/long release.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "", "`folder` for the files; it must not exist or be empty")
	flag.StringVar(&o.commit, "commit", "HEAD", "`commit` or tag to release; what is not committed is not in it")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "comma-separated `platforms`")
	flag.BoolVar(&o.samples, "samples", false, "also make the images of etcd and of the sample server that deploy/container/compose.yaml runs")
	flag.StringVar(&o.repository, "root", filepath.Join("..", ".."), "root of the `repository`")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release: "+err.Error())
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	out, commit, platforms, repository string
	samples                            bool
}

// platform is an operating system and an architecture, by Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// parsePlatforms splits the value of --platforms.
func parsePlatforms(s string) (all []platform, err error) {
	for name := range strings.SplitSeq(s, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok || system != "linux" && system != "darwin" || arch != "amd64" && arch != "arm64" {
			return nil, fmt.Errorf("--platforms: %q must be linux or darwin, a slash, and amd64 or arm64", name)
		}
		all = append(all, platform{system, arch})
	}
	return all, nil
}

func (o *options) run() error {
	platforms, err := parsePlatforms(o.platforms)
	switch {
	case err != nil:
		return err
	case flag.NArg() > 0:
		return fmt.Errorf("%q is not a flag; there are no arguments", flag.Arg(0))
	case o.out == "":
		return errors.New("--out is missing: name a folder, as in --out=../../dist")
	}
	switch entries, err := os.ReadDir(o.out); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case len(entries) > 0:
		return fmt.Errorf("--out: %s is not empty; remove it, or name another folder", o.out)
	}
	work, err := os.MkdirTemp("", "portico-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	src, err := checkOut(o.repository, o.commit, filepath.Join(work, "src"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := o.release(src, platforms, filepath.Join(work, "bin")); err != nil {
		return err
	}
	return writeChecksums(o.out)
}

// release builds everything in bin and writes the files but for their checksums.
func (o *options) release(src *source, platforms []platform, bin string) error {
	var built []imageSet
	for _, p := range platforms {
		dir := filepath.Join(bin, p.os, p.arch)
		fmt.Println("build", p)
		program, err := src.build(dir, p, "portico", ".", "./cmd/portico")
		if err != nil {
			return err
		}
		r, err := describe(src, program, p)
		if err != nil {
			return err
		}
		if err := r.writeArchive(o.out); err != nil {
			return err
		}
		if err := r.writeComponents(o.out); err != nil {
			return err
		}
		if p.os != "linux" {
			continue
		}
		set := imageSet{release: r}
		if o.samples {
			if set.samples, err = buildSamples(src, dir, p); err != nil {
				return err
			}
		}
		built = append(built, set)
	}
	return writeImages(o.out, built)
}
