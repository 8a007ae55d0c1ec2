package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"portico/resource"
)

// StaticTokens authenticates the tokens of a file. Safe for concurrent use.
type StaticTokens struct{ users *reloaded[staticUsers] }

// staticUsers are users by the digest of the token, so that the time of a lookup reveals
// nothing about a token.
type staticUsers map[[sha256.Size]byte]*resource.User

// TokenFile reads a CSV file with the columns token, user, uid and, optionally, groups, which
// are quoted and separated by commas. The file is read again when it changes. A line with
// fewer than three columns, an empty token or user, or a duplicate token is an error.
func TokenFile(path string) (*StaticTokens, error) {
	load := func() (staticUsers, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read token file: %w", err)
		}
		users, err := parseTokens(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("read token file %s: %w", path, err)
		}
		return users, nil
	}
	users, err := newReloaded(load, path)
	if err != nil {
		return nil, err
	}
	return &StaticTokens{users: users}, nil
}

// AuthenticateToken implements TokenAuthenticator.
func (s *StaticTokens) AuthenticateToken(_ context.Context, token string) (*resource.User, bool, error) {
	user := s.users.get()[sha256.Sum256([]byte(token))]
	return user, user != nil, nil
}

// parseTokens reads the lines of a token file. Errors name the line, never a token.
func parseTokens(r io.Reader) (staticUsers, error) {
	users := make(staticUsers)
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = -1
	lines.TrimLeadingSpace = true
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return users, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := lines.FieldPos(0)
		if len(fields) < 3 || fields[0] == "" || fields[1] == "" {
			return nil, fmt.Errorf("line %d: token, user and uid are required", line)
		}
		key := sha256.Sum256([]byte(fields[0]))
		if users[key] != nil {
			return nil, fmt.Errorf("line %d: duplicate token", line)
		}
		user := &resource.User{Name: fields[1], UID: fields[2]}
		if len(fields) > 3 {
			user.Groups = splitGroups(fields[3])
		}
		users[key] = WithAuthenticated(user)
	}
}

func splitGroups(field string) []string {
	var groups []string
	for group := range strings.SplitSeq(field, ",") {
		if group = strings.TrimSpace(group); group != "" {
			groups = append(groups, group)
		}
	}
	return groups
}
