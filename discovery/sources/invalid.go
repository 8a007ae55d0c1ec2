package sources

import (
	"errors"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrInvalidName is why a group/version is not asked for whose name none can have: no
// APIService can lead to it, and the path of its document may be that of another.
var ErrInvalidName = errors.New("a group must be a DNS subdomain, and a version a DNS label that begins with a letter")

// maxNameKept bounds what is kept of such a name, in bytes: it may be of any length.
const maxNameKept = 100

// Name is that of the group/version, for people.
func (u Unread) Name() string {
	if errors.Is(u.Err, ErrInvalidName) {
		return strconv.Quote(u.GroupVersion.Group + "/" + u.GroupVersion.Version)
	}
	return u.GroupVersion.String()
}

// reject takes out of a list what is not to be asked for.
func (l *index) reject() {
	l.ids = slices.DeleteFunc(l.ids, func(id schema.GroupVersion) bool {
		if validName(l.path, id) {
			return false
		}
		delete(l.aggregated, id)
		l.invalid = append(l.invalid, invalid(id))
		return true
	})
}

// invalid is what is kept of a group/version that has no name to be asked for by.
func invalid(id schema.GroupVersion) Unread {
	return Unread{GroupVersion: schema.GroupVersion{Group: clip(id.Group), Version: clip(id.Version)}, Err: ErrInvalidName}
}

// validName reports whether a server may have the group/version that it lists at a path.
func validName(path string, id schema.GroupVersion) bool {
	if path == pathCore {
		return len(validation.IsDNS1035Label(id.Version)) == 0
	}
	return len(validation.IsDNS1123Subdomain(id.Group)) == 0 && len(validation.IsDNS1035Label(id.Version)) == 0
}

func clip(name string) string {
	return string(append([]byte(nil), name[:min(len(name), maxNameKept)]...))
}
