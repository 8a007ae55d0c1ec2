package sources

import (
	"errors"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits bound what is kept of the discovery of one server and what it costs to read. What is
// beyond them is left out and reported by Unread and Dropped; the rest counts, and the server
// does not fail its check. A stream beyond them ends with an error (IsTooLong): then the
// indexes are read instead.
type Limits struct {
	// GroupVersions is the number of group/versions.
	GroupVersions int
	// Memory bounds their descriptions, in bytes (discovery.GroupVersion.Size). A
	// group/version beyond it is known by name.
	Memory int
	// Document bounds an index in bytes. Group bounds one group in an index or a stream, in
	// bytes, and Elements in JSON values: {} has two bytes and takes hundreds in memory.
	// Elements bounds the document of a group/version as well.
	Document        int64
	Group, Elements int
	// Rate bounds a stream in bytes a second, and Burst in bytes at once. 0: no limit.
	Rate, Burst int64
}

// DefaultLimits are for registered servers: 4,096 group/versions or about 10,000 resources.
// Reading the stream of such a server takes less than 64 MB of memory.
func DefaultLimits() Limits {
	return Limits{
		GroupVersions: 4096, Memory: 16 << 20, Document: 32 << 20, Group: 4 << 20, Elements: 60_000,
		Rate: 256 << 10, Burst: 64 << 20,
	}
}

// ConfiguredLimits are for the servers of the gateway's own configuration. They exceed the
// bounds of the CRD server.
func ConfiguredLimits() Limits {
	return Limits{GroupVersions: 32768, Memory: 128 << 20, Document: 256 << 20, Group: 128 << 20, Elements: 6_000_000}
}

// exceededBy reports whether a group is too large to decode.
func (l *Limits) exceededBy(group []byte) bool {
	return len(group) > l.Group || countElements(group) > l.Elements
}

// ErrBeyondLimits is why the description of a group/version is left out. The group/version is
// known by its name or by an earlier description.
var ErrBeyondLimits = errors.New("what the server says of it is beyond the limits on the discovery of one server")

// errTooLong says that a stream is beyond the limits.
var errTooLong = errors.New("the server sends more than the limits on the discovery of one server allow")

// IsTooLong reports whether an error of Follow says that the stream is beyond the limits:
// opening it again at once costs as much again.
func IsTooLong(err error) bool { return errors.Is(err, errTooLong) }

// ErrInvalidName is why a group/version is not requested: no APIService can have its name, and
// its path may be that of another document.
var ErrInvalidName = errors.New("a group must be a DNS subdomain, and a version a DNS label that begins with a letter")

// maxNameKept bounds what is kept of an invalid name, in bytes.
const maxNameKept = 100

// Name returns the name of the group/version for messages.
func (u Unread) Name() string {
	if errors.Is(u.Err, ErrInvalidName) {
		return strconv.Quote(u.GroupVersion.Group + "/" + u.GroupVersion.Version)
	}
	return u.GroupVersion.String()
}

func invalid(id schema.GroupVersion) Unread {
	return Unread{GroupVersion: schema.GroupVersion{Group: clip(id.Group), Version: clip(id.Version)}, Err: ErrInvalidName}
}

// validName reports whether a group/version of the index at a path has a valid name.
func validName(path string, id schema.GroupVersion) bool {
	if path == pathCore {
		return len(validation.IsDNS1035Label(id.Version)) == 0
	}
	return len(validation.IsDNS1123Subdomain(id.Group)) == 0 && len(validation.IsDNS1035Label(id.Version)) == 0
}

// clip returns a copy of the beginning of a name.
func clip(name string) string {
	return string(append([]byte(nil), name[:min(len(name), maxNameKept)]...))
}
