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
	// Key is "apis/G/V" or "api/v1"; "" is the index of a server, or the document from which all
	// others are converted.
	Key string
	// Message is the reason in one line. It is the same while the document is.
	Message string
}

// maxMessage bounds a Message, in bytes.
const maxMessage = 300

// BrokenError says that a server answered with an invalid document. An unavailable server is another
// error.
type BrokenError struct{ Err error }

func (e *BrokenError) Error() string { return e.Err.Error() }
func (e *BrokenError) Unwrap() error { return e.Err }

// BadStatus returns the error for an answer without a document. It is no BrokenError if the server is
// busy or starting, or has the document under another hash.
func BadStatus(of string, code int) error {
	err := fmt.Errorf("bad status of %s: %d", of, code)
	switch code {
	case http.StatusMovedPermanently, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err
	}
	return &BrokenError{err}
}

// Message returns the text of an error for Broken.Message.
func Message(err error) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// isBroken returns the reason if err is a BrokenError.
func isBroken(err error) (message string, ok bool) {
	var broken *BrokenError
	if !errors.As(err, &broken) {
		return "", false
	}
	return Message(broken), true
}

// Check returns an error if data is not an OpenAPI v3 document. Schemas are not checked: an invalid
// one affects one kind.
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

// Broken returns the documents of a server that are known to be broken. links are the URLs in its
// index, by key. A document that was not requested yet is not known.
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

// ContentHash returns the hash of a document for URLs and ETags.
func ContentHash(data []byte) string {
	sum := sha512.Sum512(data)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}
