package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeComponents writes the SBOM: the modules that the Go toolchain recorded in the
// program, and its own standard library, as CycloneDX 1.6 in JSON.
func (r *release) writeComponents(out string) error {
	data, err := os.ReadFile(r.program)
	if err != nil {
		return err
	}
	program := component(r.info.Main.Path, r.info.Main.Version)
	program.Type = cdx.ComponentTypeApplication
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(data))}}
	program.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	var settings []cdx.Property
	for _, s := range r.info.Settings {
		settings = append(settings, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	program.Properties = &settings

	components := []cdx.Component{component("std", strings.Replace(r.info.GoVersion, "go", "v", 1))}
	for _, m := range r.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(m.Path, m.Version))
	}
	var parts []string
	for _, c := range components {
		parts = append(parts, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &parts}}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("encode list of components: %w", err)
	}
	return os.WriteFile(filepath.Join(out, r.name()+".cdx.json"), b.Bytes(), 0o644)
}

// component describes a Go module.
func component(module, version string) cdx.Component {
	url := "pkg:golang/" + module + "@" + version
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module, Version: version, PackageURL: url}
}
