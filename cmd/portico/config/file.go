package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	apiVersion = "config.portico.dev/v1alpha1"
	kind       = "PorticoConfiguration"
	// All is the section for every process that has the flag.
	All = "all"
)

// File is a PorticoConfiguration. The sections of a file are named for processes; their keys are
// names of flags.
type File struct {
	path     string
	sections map[string]map[string]*yaml.Node
}

// Load reads a file. It knows sections and flags only after [File.check].
func Load(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

// parse reads the content of a file. Its errors begin with the path.
func parse(path string, data []byte) (*File, error) {
	f := &File{path: path, sections: map[string]map[string]*yaml.Node{}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, f.errorf("", "the file is empty; begin it with apiVersion: %s and kind: %s", apiVersion, kind)
	case err != nil:
		return nil, f.errorf("", "%s", strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, f.errorf("", "there is something after the document; a file has one document")
	}
	top, err := f.mapping("", document.Content[0])
	if err != nil {
		return nil, err
	}
	for _, field := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		if node := top[field[0]]; node == nil || node.Value != field[1] {
			return nil, f.errorf(field[0], "must be %s", field[1])
		}
		delete(top, field[0])
	}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		if top[name].Tag == "!!null" {
			continue // all of it is commented out
		}
		if f.sections[name], err = f.mapping(name, top[name]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// errorf returns an error of the file; at is a path in it.
func (f *File) errorf(at, format string, args ...any) error {
	place := f.path
	if at != "" {
		place += ": " + at
	}
	return fmt.Errorf("%s: %w", place, fmt.Errorf(format, args...))
}

// mapping returns the fields of a mapping. A key that occurs twice is an error.
func (f *File) mapping(at string, node *yaml.Node) (map[string]*yaml.Node, error) {
	if node = resolve(node); node.Kind != yaml.MappingNode {
		return nil, f.errorf(at, "must have the form NAME: VALUE")
	}
	out := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i].Value
		if _, twice := out[key]; twice {
			return nil, f.errorf(strings.TrimPrefix(at+"."+key, "."), "is there twice; remove the one in line %d", node.Content[i].Line)
		}
		out[key] = resolve(node.Content[i+1])
	}
	return out, nil
}

// resolve returns the node that an alias stands for.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// Has reports whether a section gives a flag. A nil File has nothing.
func (f *File) Has(section, flag string) bool { return f != nil && f.sections[section][flag] != nil }

// Values returns what a section gives for a flag.
func (f *File) Values(section, flag string) (out []string) {
	if !f.Has(section, flag) {
		return nil
	}
	node := f.sections[section][flag]
	if node.Kind != yaml.SequenceNode {
		return []string{node.Value}
	}
	for _, item := range node.Content {
		out = append(out, resolve(item).Value)
	}
	return out
}

// Errorf returns an error about the value of a flag in a section.
func (f *File) Errorf(section, flag, format string, args ...any) error {
	return f.errorf(section+"."+flag, format, args...)
}

// section returns the section that sets a flag of a process: its own rather than all; "" for none.
func (f *File) section(process, flag string) string {
	for _, name := range []string{process, All} {
		if f.Has(name, flag) {
			return name
		}
	}
	return ""
}
