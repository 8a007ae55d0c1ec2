package cli

import (
	"context"
	"fmt"
	"strings"
)

// ShellQuote quotes a path for a shell if it needs it.
func ShellQuote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@,:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// QuietIfStopped drops an error that is due to the end of ctx.
func QuietIfStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ParsePair splits name=value.
func ParsePair(flag, s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" || value == "" {
		return "", "", fmt.Errorf("--%s %q: must have the form name=value", flag, s)
	}
	return name, value, nil
}
