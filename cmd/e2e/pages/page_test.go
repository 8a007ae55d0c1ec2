//go:build boot

package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// step is what a test adds to a command of a page.
type step struct {
	// before does what the page says in words.
	before func(*testing.T)
	// instead runs the command in another way; nil: newcomer types it.
	instead func(t *testing.T, line string)
	// await repeats the command until it prints shows.
	await bool
	// shows is a part of what the command prints.
	shows string
	// after checks what the command did.
	after func(*testing.T)
}

// command is a command in a block of a page, or one in its text.
var command = regexp.MustCompile("(?m)^ {4}(\\S.*)$|`((?:sudo|systemctl|systemd-analyze|docker|umask) [^`\n]+)`")

// follow runs all commands of a page from its first to its last line.
func (m *machine) follow(t *testing.T, name string, steps map[string]step) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(e2e.Repository(), name))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, match := range command.FindAllStringSubmatch(string(page), -1) {
		line := match[1] + match[2]
		t.Log(line)
		s := steps[line]
		seen[line] = true
		if s.before != nil {
			s.before(t)
		}
		switch {
		case s.instead != nil:
			s.instead(t, line)
		case s.await:
			m.await(t, line, s.shows)
		default:
			if out := m.run(t, line); !strings.Contains(out, s.shows) {
				t.Errorf("%s does not show %q:\n%s", line, s.shows, out)
			}
		}
		if s.after != nil {
			s.after(t)
		}
	}
	for line := range steps {
		if !seen[line] {
			t.Errorf("%s has no %q any more", name, line)
		}
	}
}

// Every command of the pages for systemd and for containers succeeds on a machine of their own, in the order of the page,
// for an account that may use sudo and docker, and does what the page says.
func TestPages(t *testing.T) {
	m := newMachine(t)
	t.Run("systemd", m.followSystemd)
	t.Run("containers", m.followContainers)
}
