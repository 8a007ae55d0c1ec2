// Licenses collects the licences and notices of everything that is linked into
// the portico binary: its modules, folders of theirs under a licence of their
// own, and Go's standard library.
//
// Usage, in cmd/tools:
//
//	go run ./licenses          writes THIRD_PARTY_LICENSES in the root of the repository
//	go run ./licenses -check   fails if that file is out of date
//
// Runs in: .ci/run.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// fileName is the file in the root of the repository.
const fileName = "THIRD_PARTY_LICENSES"

// legal matches the names of files that a distribution has to carry.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([._-].*)?$`)

func main() {
	check := flag.Bool("check", false, "fail if "+fileName+" is out of date, and write nothing")
	root := flag.String("root", filepath.Join("..", ".."), "root of the repository")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	components, err := linked(root)
	if err != nil {
		return err
	}
	want, err := render(components)
	if err != nil {
		return err
	}
	path := filepath.Join(root, fileName)
	if !check {
		return os.WriteFile(path, want, 0o644)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s is out of date: run `go -C cmd/tools run ./licenses`", fileName)
	}
	return nil
}

// component is something that is linked, with the files that have to go with it.
type component struct {
	name  string
	files []string
}

// linked returns what ./cmd/portico links, sorted by name.
func linked(root string) ([]component, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,ImportPath,Standard,Module", "./cmd/portico")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	names := map[string]string{strings.TrimSpace(string(goroot)): "Go standard library"}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, ImportPath string
			Standard        bool
			Module          *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read list of packages: %w", err)
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		names[p.Module.Dir] = p.Module.Path + " " + p.Module.Version
		for dir := p.Dir; dir != p.Module.Dir; dir = filepath.Dir(dir) {
			names[dir] = p.Module.Path + " " + p.Module.Version + ", " + strings.TrimPrefix(dir, p.Module.Dir+"/")
		}
	}
	return collect(names)
}

// collect finds the files of each folder. A module must have a licence; folders
// within one, which names has as well, may.
func collect(names map[string]string) ([]component, error) {
	var all []component
	for dir, name := range names {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		c := component{name: name}
		for _, e := range entries {
			if e.Type().IsRegular() && legal.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
				c.files = append(c.files, filepath.Join(dir, e.Name()))
			}
		}
		if len(c.files) > 0 {
			all = append(all, c)
		} else if !strings.Contains(name, ", ") {
			return nil, fmt.Errorf("%s has no licence file", name)
		}
	}
	slices.SortFunc(all, func(a, b component) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// render lists the components, then each text once with the components that it is for.
func render(components []component) ([]byte, error) {
	var texts []string
	owners := map[string][]string{}
	var list bytes.Buffer
	for _, c := range components {
		fmt.Fprintln(&list, "  "+c.name)
		for _, file := range c.files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n"))
			if owners[text] == nil {
				texts = append(texts, text)
			}
			owners[text] = append(owners[text], c.name+" ("+filepath.Base(file)+")")
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "The portico binary contains the components below. Their licences and notices follow, each text once.\nMade by `go -C cmd/tools run ./licenses`.\n\n%s", &list)
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n", strings.Repeat("=", 80))
		for _, owner := range owners[text] {
			fmt.Fprintln(&out, owner)
		}
		fmt.Fprintf(&out, "%s\n\n%s\n", strings.Repeat("-", 80), text)
	}
	return out.Bytes(), nil
}
