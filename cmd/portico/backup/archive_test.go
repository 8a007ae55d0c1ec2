package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"portico/cmd/portico/cli"
)

// content are the parts of the backups of the tests.
func content() map[string][]byte {
	snapshot := make([]byte, 300_000)
	rand.NewChaCha8([32]byte{1}).Read(snapshot)
	return map[string][]byte{snapshotName: snapshot, "pki/admin.key": []byte("key"), configName: []byte("kind: x\n")}
}

func manifestOf(parts map[string][]byte) *Manifest {
	m := &Manifest{FormatVersion: formatVersion, PorticoVersion: "devel", Time: time.Unix(1e9, 0).UTC(), Etcd: EtcdState{Revision: 7}, Objects: map[string]int64{"pods": 3}}
	for _, name := range []string{snapshotName, "pki/admin.key", configName} {
		sum := sha256.Sum256(parts[name])
		m.Parts = append(m.Parts, Part{Name: name, Size: int64(len(parts[name])), SHA256: hex.EncodeToString(sum[:])})
	}
	return m
}

func archive(t *testing.T, m *Manifest, parts map[string][]byte, to ...age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	err := writeArchive(&out, m, to, func(p Part) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(parts[p.Name])), nil })
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(data []byte, keys ...age.Identity) (map[string][]byte, error) {
	got := map[string][]byte{}
	err := readArchive(bytes.NewReader(data), func() ([]age.Identity, error) {
		if len(keys) == 0 {
			return nil, errEncrypted
		}
		return keys, nil
	}, func(*Manifest) error { return nil }, func(p Part) (io.WriteCloser, error) { return &memory{name: p.Name, to: got}, nil })
	return got, err
}

func newKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What is written is read, plain, encrypted for a key, and with a passphrase.
func TestArchive(t *testing.T) {
	t.Parallel()
	parts, key := content(), newKey(t)
	to, err := age.NewScryptRecipient("a phrase")
	if err != nil {
		t.Fatal(err)
	}
	to.SetWorkFactor(10)
	phrase, err := age.NewScryptIdentity("a phrase")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		to   []age.Recipient
		keys []age.Identity
	}{
		"plain":      {nil, nil},
		"key":        {[]age.Recipient{key.Recipient()}, []age.Identity{newKey(t), key}},
		"passphrase": {[]age.Recipient{to}, []age.Identity{phrase}},
	} {
		data := archive(t, manifestOf(parts), parts, tc.to...)
		if got, err := read(data, tc.keys...); err != nil || !maps.EqualFunc(got, parts, bytes.Equal) {
			t.Errorf("%s: %d parts, %v", name, len(got), err)
		}
		if tc.to != nil && bytes.Contains(data, parts[snapshotName][:64]) {
			t.Errorf("%s: the backup is not encrypted", name)
		}
	}
}

// Each damage of a backup, and each wrong key, is one sentence.
func TestDamagedArchive(t *testing.T) {
	t.Parallel()
	parts, key := content(), newKey(t)
	parts["pki/../../x"] = parts["pki/admin.key"]
	plain := archive(t, manifestOf(parts), parts)
	secret := archive(t, manifestOf(parts), parts, key.Recipient())
	flip := func(data []byte, at int) []byte {
		data = slices.Clone(data)
		data[at] ^= 1
		return data
	}
	changed := func(change func(m *Manifest)) []byte {
		m := manifestOf(parts)
		change(m)
		return archive(t, m, parts)
	}
	for name, tc := range map[string]struct {
		data []byte
		keys []age.Identity
		want string
	}{
		"empty":                       {nil, nil, "it is truncated"},
		"something else":              {[]byte(strings.Repeat("x", 1000)), nil, "it is not a backup of portico"},
		"truncated":                   {plain[:len(plain)/2], nil, "it is truncated"},
		"last byte missing":           {plain[:len(plain)-1], nil, "it is truncated"},
		"flipped byte":                {flip(plain, len(plain)/2), nil, "it is damaged"},
		"flipped checksum":            {flip(plain, len(plain)-5), nil, "it is damaged"},
		"no key":                      {secret, nil, "it is encrypted: name --passphrase-file or --identity-file"},
		"another key":                 {secret, []age.Identity{newKey(t)}, "its passphrase is another one, or it is encrypted for other keys"},
		"encrypted and truncated":     {secret[:len(secret)/2], []age.Identity{key}, "it is damaged"},
		"encrypted and flipped":       {flip(secret, len(secret)/2), []age.Identity{key}, "it is damaged"},
		"newer format":                {changed(func(m *Manifest) { m.FormatVersion = 2 }), nil, "it has format version 2 and this portico reads 1: use the portico that made it, or a newer one"},
		"another hash":                {changed(func(m *Manifest) { m.Parts[1].SHA256 = m.Parts[0].SHA256 }), nil, "it is damaged: pki/admin.key does not have the hash that the manifest names"},
		"a part outside of its place": {changed(func(m *Manifest) { m.Parts[1].Name = "pki/../../x" }), nil, "its manifest has the part \"pki/../../x\" where there is none"},
		"no parts":                    {changed(func(m *Manifest) { m.Parts = nil }), nil, "its manifest has no parts"},
	} {
		_, err := read(tc.data, tc.keys...)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

// Wrong flags are one line that names them.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	empty, phrase := file("empty", "\n"), file("phrase", "x")
	backup := file("backup", string(archive(t, manifestOf(content()), content())))
	used := filepath.Join(dir, "used")
	if err := os.MkdirAll(filepath.Join(used, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"backup", "an argument is missing"},
		{"backup x --data-dir=" + dir, "no portico up with an etcd of its own runs on " + dir},
		{"backup x --etcd-servers=foo", `endpoint "foo"`},
		{"backup x --etcd-servers=http://127.0.0.1:1 --passphrase-file=" + empty, "--passphrase-file: " + empty + " is empty"},
		{"backup x --etcd-servers=http://127.0.0.1:1 --passphrase-file=/none", "--passphrase-file: open /none"},
		{"backup x --etcd-servers=http://127.0.0.1:1 --encrypt-to=bob", `--encrypt-to "bob": it must be a public key of age`},
		{"backup x --etcd-servers=http://127.0.0.1:1 --encrypt-to=a --passphrase-file=" + phrase, "exclude each other"},
		{"backup x --etcd-servers=http://127.0.0.1:1 --config=/none", "--config: "},
		{"backup x --etcd-servers=http://127.0.0.1:1 --pki-dir=/none", "read keys: "},
		{"backup show /none", "read backup: open /none"},
		{"backup show " + phrase, "read backup " + phrase + ": it is truncated"},
		{"backup show -o xml " + backup, "-o xml: must be"},
		{"restore", "name either a backup"},
		{"restore " + backup, "name either --data-dir"},
		{"restore " + backup + " --from-data-dir=x --data-dir=y", "name either a backup"},
		{"restore --from-data-dir=" + dir + " --data-dir=" + dir + "/new", "--from-data-dir: stat "},
		{"restore --from-data-dir=x --snapshot-to=y", "--snapshot-to applies to a backup"},
		{"restore " + backup + " --data-dir=x --pki-dir=y", "--pki-dir applies to --snapshot-to"},
		{"restore " + backup + " --data-dir=" + used, "--data-dir: " + used + " is not empty, it has pki"},
		{"restore " + backup + " --snapshot-to=" + phrase, "--snapshot-to: " + phrase + " exists"},
		{"restore " + backup + " --snapshot-to=x --pki-dir=" + used, "--pki-dir: " + used + " is not empty"},
		{"restore " + backup + " --snapshot-to=x --bump-revision=5", "do not apply to --snapshot-to"},
		{"restore " + backup + " --data-dir=x --mark-compacted=false", "--bump-revision=0 and --mark-compacted=false go together"},
		{"restore " + backup + " --data-dir=x --bump-revision=9223372036854775807", "at most 4611686018427387904"},
		{"restore " + backup + " --data-dir=" + dir + "/new", "restore etcd from "},
	} {
		args, root := strings.Fields(tc.args), New()
		if args[0] == "restore" {
			root = NewRestore()
		}
		root.SetArgs(args[1:])
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SilenceErrors, root.SilenceUsage = true, true
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", tc.args, err, tc.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new", "etcd")); err == nil {
		t.Error("a snapshot that is none left a data folder of etcd")
	}
}

// The manifest is at the beginning: it is shown without the rest.
func TestShow(t *testing.T) {
	t.Parallel()
	parts := content()
	data := archive(t, manifestOf(parts), parts)
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"", "json"} {
		var out bytes.Buffer
		cmd := New()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"show", file, "-o", format})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var m Manifest
		if format == "json" && (json.Unmarshal(out.Bytes(), &m) != nil || m.Objects["pods"] != 3) {
			t.Errorf("got %s", &out)
		}
		if !strings.Contains(out.String(), "2001-09-09T01:46:40Z") || !strings.Contains(out.String(), "pki/admin.key") {
			t.Errorf("got %s", &out)
		}
	}
}

// A command that is interrupted fails, and leaves neither half a file nor the snapshot.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir, parts := t.TempDir(), content()
	err := writeFile(filepath.Join(dir, "backup"), func(w io.Writer) error {
		p := cli.StartProgress(ctx, io.Discard, "writing", 1, cli.Size)
		defer p.Stop()
		return writeArchive(w, manifestOf(parts), nil, func(part Part) (io.ReadCloser, error) {
			return io.NopCloser(io.TeeReader(bytes.NewReader(parts[part.Name]), p)), nil
		})
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
