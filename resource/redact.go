package resource

import "strings"

// redacted replaces a removed value.
const redacted = "REDACTED"

// secretWords are words in the names of query parameters with credentials.
var secretWords = [...]string{"token", "secret", "password", "passwd", "credential", "authorization", "apikey", "api_key", "api-key", "signature"}

// RedactURI returns the URI without the values of query parameters with credentials, for
// logs, audit events and traces. Names are decoded and compared without regard to case.
func RedactURI(uri string) string {
	path, query, found := strings.Cut(uri, "?")
	if !found || !mentionsSecret(query) {
		return uri
	}
	var out strings.Builder
	out.Grow(len(uri))
	out.WriteString(path)
	separator := byte('?')
	for query != "" {
		end := strings.IndexAny(query, "&;")
		parameter, rest, next := query, "", byte(0)
		if end >= 0 {
			parameter, rest, next = query[:end], query[end+1:], query[end]
		}
		out.WriteByte(separator)
		name, _, valued := strings.Cut(parameter, "=")
		if valued && mentionsSecret(name) {
			parameter = name + "=" + redacted
		}
		out.WriteString(parameter)
		query, separator = rest, next
	}
	return out.String()
}

// mentionsSecret reports whether the text contains one of the secretWords.
func mentionsSecret(text string) bool {
	text = strings.ToLower(decodeLetters(text))
	for _, word := range secretWords {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// decodeLetters decodes percent-encoded bytes and does not change malformed ones.
func decodeLetters(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := hexDigit(text[i+1]), hexDigit(text[i+2])
			if high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return string(out)
}

// hexDigit returns the value of a hexadecimal digit; -1 for another character.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
