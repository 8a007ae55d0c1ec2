package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
)

// Control characters and invalid bytes are shown as escapes, and other text as it is.
func TestScreen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\tb\nc ä 漢 🙂":                "a\tb\nc ä 漢 🙂",
		"x\x1b[31mRED\x1b]0;title\x07": `x\u001b[31mRED\u001b]0;title\u0007`,
		"a\rb\x00\x7f":                 `a\u000db\u0000\u007f`,
		"\u009b31m":                    `\u009b31m`,
		"\x9b31m":                      `\u009b31m`,
		"\xff\xfe":                     `\u00ff\u00fe`,
		"\x1bABCDEFGHIJKLMNOPQRSTUVWX": `\u001bABCDEFGHIJKLMNOPQRSTUVWX`,
		sequence("[31m") + "x\x1b[0m":  "\x1b[31mx" + `\u001b[0m`,
		"":                             "",
	} {
		var out bytes.Buffer
		if n, err := (Screen{&out}).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: got %q, %d, %v; want %q", text, &out, n, err, want)
		}
	}
}

// What is no text goes below the Screen.
func TestRaw(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, w := range []io.Writer{Screen{&out}, &out} {
		if Raw(w) != &out {
			t.Errorf("the writer below a %T is a %T", w, Raw(w))
		}
	}
}

// A document for programs has the same values after a Screen.
func TestScreenKeepsDocuments(t *testing.T) {
	t.Parallel()
	value := map[string]string{"a": "\x1b[31m\x7f\u009b\u0085\r\n\tä"}
	document, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []OutputFlag{outputJSON, outputYAML} {
		var direct, screened bytes.Buffer
		if err := o.PrintRaw(&direct, document); err != nil {
			t.Fatal(err)
		}
		if err := o.PrintRaw(Screen{&screened}, document); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(screened.String(), "\x1b\x7f\r\u009b\u0085") {
			t.Errorf("%s: got %q", o, &screened)
		}
		if o == outputYAML && direct.String() != screened.String() {
			t.Errorf("got %q, want %q", &screened, &direct)
		}
		var back map[string]string
		if o == outputJSON && (json.Unmarshal(screened.Bytes(), &back) != nil || back["a"] != value["a"]) {
			t.Errorf("got %q back from %q", back["a"], &screened)
		}
	}
}

// Cells and lines hold no line feeds of others, and a Screen of a file that is no terminal has no
// colors.
func TestRowsAreLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := PrintRows(Screen{&out}, []string{"A", "B"}, [][]string{{"1\nHealthy yes", "\x1b[2J\t2"}}); err != nil {
		t.Fatal(err)
	}
	if want := "A               B\n1 Healthy yes   \\u001b[2J 2\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if text := Colored(Screen{file})(Red, "x"); text != "x" {
		t.Errorf("got %q", text)
	}
}
