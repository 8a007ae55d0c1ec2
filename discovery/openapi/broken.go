package openapi

import (
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Broken is a document of a server that cannot be used.
type Broken struct {
	// Key is "apis/G/V" or "api/v1"; "" is what all of a server's documents
	// depend on: its index, or the document that all are made of.
	Key string
	// Message says why, in a line that stays the same while the document does.
	Message string
}

// maxMessage bounds a Message, in bytes.
const maxMessage = 300

// BrokenError says that a server answered, but not with a document that can be
// used. Being out of reach is another matter.
type BrokenError struct{ Err error }

func (e *BrokenError) Error() string { return e.Err.Error() }
func (e *BrokenError) Unwrap() error { return e.Err }

// BadStatus is the error for an answer with such a code in place of a document.
// A server that is only busy, or starting, has no broken one, nor has one that
// knows the document under another hash by now.
func BadStatus(of string, code int) error {
	err := fmt.Errorf("bad status of %s: %d", of, code)
	switch code {
	case http.StatusMovedPermanently, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err
	}
	return &BrokenError{err}
}

// Message is why a document is broken, fit for a Broken.
func Message(err error) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// isBroken returns the reason if err is a document's.
func isBroken(err error) (message string, ok bool) {
	var broken *BrokenError
	if !errors.As(err, &broken) {
		return "", false
	}
	return Message(broken), true
}

// Check says what keeps a server's answer from being an OpenAPI v3 document; nil
// if nothing does. It looks at the whole, not into each schema: what is wrong
// there spoils one kind.
func Check(data []byte) error {
	var doc struct {
		OpenAPI    string              `json:"openapi"`
		Paths      map[string]struct{} `json:"paths"`
		Components struct {
			Schemas map[string]struct{} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return &BrokenError{fmt.Errorf("decode OpenAPI v3 document: %w", err)}
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") {
		return &BrokenError{errors.New("no OpenAPI v3 document: it has no field openapi of 3.x")}
	}
	return nil
}

// Broken returns which of a server's documents, key to the link that the index
// has, are known to be broken. What nobody asked for yet is not known.
func (m *Remote) Broken(owner string, links map[string]string) (out []Broken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(links)) {
		doc, ok := m.known.Peek(remoteLink{owner, links[key]})
		if !ok {
			continue
		}
		if message := doc.broken.Load(); message != nil {
			out = append(out, Broken{key, *message})
		}
	}
	return out
}

// ContentHash is the hash of a document, as it is in URLs and ETags.
func ContentHash(data []byte) string {
	sum := sha512.Sum512(data)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}
