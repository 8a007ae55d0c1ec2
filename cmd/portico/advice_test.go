package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/e2e"
)

// productFolders are those whose texts users read.
var productFolders = []string{"apiservice", "backends", "cmd/internal", "cmd/portico", "discovery", "gateway", "resource"}

// literals calls each with the string literals in the product, of which concatenated ones are one.
func literals(t *testing.T, each func(position, text string)) {
	t.Helper()
	for _, folder := range productFolders {
		err := filepath.WalkDir(filepath.Join(e2e.Repository(), folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, constant := literal(e)
				if constant {
					each(strings.TrimPrefix(files.Position(n.Pos()).String(), e2e.Repository()+"/"), text)
				}
				return !constant
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// literal returns the value of a string literal, or of several that are concatenated. What is not
// constant in between is a %s.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		x, left := literal(e.X)
		y, right := literal(e.Y)
		if e.Op != token.ADD || !left && !right {
			return "", false
		}
		if !left {
			x = "%s"
		}
		if !right {
			y = "%s"
		}
		return x + y, true
	}
	return "", false
}

// otherFlags are flags of other programs in texts that do not name the program, and the program.
var otherFlags = map[string]string{
	"non-resource-url": "kubectl create clusterrole", "resource": "kubectl create clusterrole", "quiet": "systemctl", "create": "systemd-tmpfiles",
	"system": "useradd", "user-group": "useradd", "home-dir": "useradd", "shell": "useradd",
}

// prose are words that follow portico in sentences, where commands would.
var prose = []string{"or", "that", "reads", "runs", "start", "as", "wrote", "in", "can", "did", "port-forward"}

var (
	namedFlag = regexp.MustCompile(`(?:^|[\s("'=\[])--([a-z][a-z0-9-]*[a-z0-9])([-%{]?)`)
	// otherProgram matches the beginning of another program with its flags.
	otherProgram = regexp.MustCompile(`\b(?:kubectl|etcdctl|etcdutl|systemctl|curl|base64) `)
	namedCommand = regexp.MustCompile(`\bportico ([a-z][a-z-]*)`)
)

// commandOf returns the command that a text which begins with portico names; root: none.
func commandOf(root *cobra.Command, text string) *cobra.Command {
	words := strings.Split(strings.TrimPrefix(text, "portico "), " ")
	cmd := root
	for ; len(words) > 0; words = words[1:] {
		word, _, _ := strings.Cut(strings.Trim(words[0], `"':.()`), "%") // portico up%s
		next, _, err := cmd.Find([]string{word})
		if err != nil || next == cmd {
			break
		}
		cmd = next
	}
	return cmd
}

// clauses splits a text where another program may begin.
func clauses(text string) (out []string) {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";,\n", r) }) {
		from := 0
		programs := append(otherProgram.FindAllStringIndex(line, -1), namedCommand.FindAllStringIndex(line, -1)...)
		slices.SortFunc(programs, func(a, b []int) int { return a[0] - b[0] })
		for _, at := range programs {
			if at[0] > from {
				out, from = append(out, line[from:at[0]]), at[0]
			}
		}
		out = append(out, line[from:])
	}
	return out
}

// flagsOf returns the flags of a command and those of its parents.
func flagsOf(cmd *cobra.Command) map[string]bool {
	known := map[string]bool{"help": true}
	add := func(f *pflag.Flag) { known[f.Name] = true }
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return known
}

// flagsBelow returns the flags of a command and of all below it.
func flagsBelow(cmd *cobra.Command) map[string]bool {
	known := flagsOf(cmd)
	for _, c := range cmd.Commands() {
		maps.Copy(known, flagsBelow(c))
	}
	return known
}

// Every command that a text of the product names exists and takes the flags beside it; flags without
// a command are those of some command.
func TestAdvice(t *testing.T) {
	root := newRoot()
	all := flagsBelow(root)
	literals(t, func(position, text string) {
		for _, clause := range clauses(text) {
			if otherProgram.MatchString(clause) {
				continue
			}
			known, of := all, "no command"
			if m := namedCommand.FindStringSubmatchIndex(clause); m != nil {
				cmd := commandOf(root, clause[m[0]:])
				switch {
				case cmd != root:
					known, of = flagsOf(cmd), "not "+cmd.CommandPath()
				case !slices.Contains(prose, clause[m[2]:m[3]]):
					t.Errorf("%s: there is no command portico %s: %q", position, clause[m[2]:m[3]], text)
				}
			}
			clause, _, _ = strings.Cut(clause, " -- ") // flags of another command
			for _, m := range namedFlag.FindAllStringSubmatch(clause, -1) {
				if m[2] == "" && !known[m[1]] && otherFlags[m[1]] == "" {
					t.Errorf("%s: %s takes the flag --%s: %q", position, of, m[1], text)
				}
			}
		}
	})
}
