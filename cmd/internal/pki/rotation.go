package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Rotation is a request to the process that calls Ensure for a folder: an empty file of that name in the folder.
// Ensure removes the file when it has done what is requested.
type Rotation string

const (
	// ReplaceAuthorities begins the replacement of all CAs and of the service-account signing key, unless one is under way.
	ReplaceAuthorities Rotation = "replace-authorities"
	// RetireAuthorities ends the trust in the CAs that have been replaced.
	RetireAuthorities Rotation = "retire-authorities"
)

// MaxEarlier is how many replaced CAs may be trusted when another replacement is requested: crypto/x509 makes 100 attempts to
// verify a certificate, of which a chain over n CAs of one name takes up to n*n/4. Without a request two are trusted at most.
const MaxEarlier = 8

// Request asks for it.
func (r Rotation) Request(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, string(r)), nil, 0o600); err != nil {
		return fmt.Errorf("request a change of authorities: %w", err)
	}
	return nil
}

// Requested returns when it was requested; the zero time if it was not, or is done.
func (r Rotation) Requested(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, string(r)))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Pending reports whether it was requested and is not done.
func (r Rotation) Pending(dir string) bool { return !r.Requested(dir).IsZero() }

func (r Rotation) done(dir string) error {
	if err := os.Remove(filepath.Join(dir, string(r))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// usedFrom returns when the next certificate will be used; the zero time if there is none.
func (a *authority) usedFrom() time.Time {
	if a.next == nil {
		return time.Time{}
	}
	return a.next.NotBefore.Add(backdate + overlap(a.next))
}

// Replacement is the state of a CA.
type Replacement struct {
	// Name is that of the files, such as serving-ca.
	Name string
	// Ends is when the certificate in use ends.
	Ends time.Time
	// UsedFrom is when the next certificate will be used; the zero time if there is none.
	UsedFrom time.Time
	// Earlier are the ends of the certificates that have been replaced and are trusted.
	Earlier []time.Time
}

// Replacements returns the state of the CAs in a folder of Ensure. It changes nothing.
func Replacements(dir string) ([]Replacement, error) {
	var out []Replacement
	for _, name := range []string{string(ServingAuthority), string(ClientAuthority), string(FrontProxyAuthority), kubeletServingName} {
		a, err := readAuthority(pairIn(dir, name))
		if err != nil {
			return nil, err
		}
		key, err := readKey(nextKeyFile(a.files))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		r := Replacement{Name: name, Ends: a.cert.NotAfter}
		for _, c := range a.trusted[1:] {
			if err == nil && isOf(c, key) {
				a.next = c
			} else {
				r.Earlier = append(r.Earlier, c.NotAfter)
			}
		}
		r.UsedFrom = a.usedFrom()
		out = append(out, r)
	}
	return out, nil
}

// finish ends the trust in earlier certificates if that was requested, and returns when the first of the next ones
// will be used.
func finish(dir string, all []*authority) (used time.Time, err error) {
	retire := RetireAuthorities.Pending(dir)
	for _, a := range all {
		if retire {
			if err := a.retire(func(*x509.Certificate) bool { return true }); err != nil {
				return used, err
			}
		}
		if from := a.usedFrom(); a.next != nil && (used.IsZero() || from.Before(used)) {
			used = from
		}
	}
	return used, errors.Join(ReplaceAuthorities.done(dir), RetireAuthorities.done(dir))
}
