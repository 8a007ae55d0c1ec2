package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xeipuuv/gojsonschema"
)

// root is the root of the repository.
var root = filepath.Join("..", "..", "..")

// programs is the folder of the programs that builtProgram has built.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "portico-release-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(programs)
	os.Exit(code)
}

// builds has a sync.OnceValue of the build of each program.
var builds sync.Map

// builtProgram builds a package of the working copy, as go test builds it.
func builtProgram(t *testing.T, name, module, pkg string) string {
	t.Helper()
	file := filepath.Join(programs, name)
	once, _ := builds.LoadOrStore(name, sync.OnceValue(func() error {
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, pkg)
		cmd.Dir = filepath.Join(root, module)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return nil
	}))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return file
}

// testRelease is a release of the working copy for the platform of the test.
func testRelease(t *testing.T) *release {
	t.Helper()
	src := &source{dir: root, commit: strings.Repeat("0", 40), date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	file := builtProgram(t, "portico", ".", "./cmd/portico")
	r, err := describe(src, file, platform{"linux", runtime.GOARCH})
	if r == nil { // a build of no commit has no version
		r = &release{source: src, platform: platform{"linux", runtime.GOARCH}, program: file}
		if !strings.Contains(err.Error(), "and not that of a commit") {
			t.Fatal(err)
		}
		r.info = buildInfo(t, file)
	}
	r.version = "1.2.3"
	return r
}

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// An archive has the program, the changelog and the legal files, in a folder, with the date
// of the commit, and is the same each time.
func TestArchive(t *testing.T) {
	t.Parallel()
	r, out, again := testRelease(t), t.TempDir(), t.TempDir()
	for _, dir := range []string{out, again} {
		if err := r.writeArchive(dir); err != nil {
			t.Fatal(err)
		}
	}
	name := "portico-1.2.3-linux-" + runtime.GOARCH
	archive := read(t, out, name+".tar.gz")
	if !bytes.Equal(archive, read(t, again, name+".tar.gz")) {
		t.Error("two archives differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r, at := tar.NewReader(z), r.date; ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(at) || h.Uid != 0 {
			t.Errorf("%s: %v, user %d", h.Name, h.ModTime, h.Uid)
		}
		names = append(names, fmt.Sprintf("%o %s", h.Mode, strings.TrimPrefix(h.Name, name)))
	}
	if want := []string{"755 /", "755 /portico", "644 /CHANGELOG.md", "644 /LICENSE", "644 /NOTICE", "644 /THIRD_PARTY_LICENSES"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
}

// The list of components is valid CycloneDX 1.6 and has the modules of the program, the
// standard library, and the program's own checksum.
func TestComponents(t *testing.T) {
	t.Parallel()
	r, out := testRelease(t), t.TempDir()
	if err := r.writeComponents(out); err != nil {
		t.Fatal(err)
	}
	bom := read(t, out, r.name()+".cdx.json")
	for _, want := range []string{
		`"purl": "pkg:golang/go.etcd.io/etcd/server/v3@v3.`, `"purl": "pkg:golang/std@v1.`, `"timestamp": "2026-01-02T03:04:05Z"`,
		fmt.Sprintf(`"content": "%x"`, sha256.Sum256(read(t, r.program))),
	} {
		if !bytes.Contains(bom, []byte(want)) {
			t.Errorf("it lacks %s", want)
		}
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	schema := func(name string) gojsonschema.JSONLoader {
		return gojsonschema.NewReferenceLoader("file://" + filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
	}
	loader := gojsonschema.NewSchemaLoader()
	if err := loader.AddSchemas(schema("spdx.schema.json"), schema("jsf-0.82.schemax.json")); err != nil {
		t.Fatal(err)
	}
	compiled, err := loader.Compile(schema("bom-1.6.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		bom   []byte
		valid bool
	}{{bom, true}, {bytes.Replace(bom, []byte(`"bom-ref"`), []byte(`"bomref"`), 1), false}} {
		result, err := compiled.Validate(gojsonschema.NewBytesLoader(tc.bom))
		if err != nil {
			t.Fatal(err)
		}
		if result.Valid() != tc.valid {
			t.Errorf("valid: %v: %v", result.Valid(), result.Errors())
		}
	}
}

// SHA256SUMS has every file, and of an image layout the index.
func TestChecksums(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	if err := os.Mkdir(filepath.Join(out, layoutFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"portico-1-linux-amd64.tar.gz", "portico-1-linux-amd64.cdx.json", "oci/index.json"} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeChecksums(out); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, name := range []string{"portico-1-linux-amd64.cdx.json", "portico-1-linux-amd64.tar.gz", "oci/index.json"} {
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256([]byte(name)), name)
	}
	if got := string(read(t, out, "SHA256SUMS")); got != want.String() {
		t.Errorf("got %s, want %s", got, want.String())
	}
}

// A wrong flag is refused before anything is built or written.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := "linux/amd64,darwin/arm64"
	for want, o := range map[string]options{
		"--out is missing":                     {platforms: all, commit: "HEAD"},
		"--out: " + full + " is not empty":     {platforms: all, commit: "HEAD", out: full},
		`--platforms: "windows/amd64" must be`: {platforms: "linux/amd64,windows/amd64", out: full + "/new"},
		`--platforms: "linux" must be`:         {platforms: "linux", out: full + "/new"},
		`--platforms: "" must be`:              {platforms: "", out: full + "/new"},
		`--commit: there is no commit "no"`:    {platforms: all, commit: "no", out: full + "/new"},
	} {
		o.repository = root
		if err := o.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	if fileExists(filepath.Join(full, "new")) {
		t.Error("--out was made")
	}
}
