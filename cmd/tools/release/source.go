package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// source is a clean clone of the repository at one commit. The Go toolchain records version,
// commit and date in programs that are built in it.
type source struct {
	dir, commit string
	// date is when the commit was made: the date of every file of the release.
	date time.Time
}

// checkOut clones a repository at a commit into dir.
func checkOut(repository, commit, dir string) (*source, error) {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return nil, err
	}
	hash, err := git(repository, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("--commit: there is no commit %q in %s", commit, repository)
	}
	if _, err := git(repository, "clone", "--quiet", "--shared", "--no-checkout", repository, dir); err != nil {
		return nil, err
	}
	if _, err := git(dir, "-c", "advice.detachedHead=false", "checkout", "--quiet", hash); err != nil {
		return nil, err
	}
	seconds, err := git(dir, "show", "--no-patch", "--format=%ct", hash)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the date of commit %s: %w", hash, err)
	}
	return &source{dir: dir, commit: hash, date: time.Unix(n, 0).UTC()}, nil
}

// git runs a git command and returns what it prints.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// build builds a package of a module of the source as out/name. Nothing of the machine, its
// environment or its folders is in the program.
func (s *source) build(out string, p platform, name, module, pkg string) (string, error) {
	program, err := filepath.Abs(filepath.Join(out, name))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -buildid=", "-o", program, pkg)
	cmd.Dir = filepath.Join(s.dir, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off",
		"GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s for %s: %w", name, p, err)
	}
	return program, nil
}

// release is portico for one platform.
type release struct {
	*source
	platform
	program string
	info    *buildinfo.BuildInfo
	// version is Portico's own: of a tag, without the v, or a pseudo-version of Go.
	version string
}

// describe reads what the Go toolchain recorded in a program.
func describe(src *source, program string, p platform) (*release, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read build information: %w", err)
	}
	version, ok := strings.CutPrefix(info.Main.Version, "v")
	if !ok {
		return nil, fmt.Errorf("the Go toolchain recorded the version %q in %s, and not that of a commit", info.Main.Version, program)
	}
	return &release{source: src, platform: p, program: program, info: info, version: version}, nil
}

// name is the name of the release's files, without extension.
func (r *release) name() string { return fmt.Sprintf("portico-%s-%s-%s", r.version, r.os, r.arch) }
