package sources

import (
	"errors"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// Limits bound what is kept of one server's discovery, and what reading it may cost.
// They are no verdict on the server: what is beyond them is left out, Unread and Dropped
// tell of it, and everything else counts.
type Limits struct {
	// GroupVersions is how many group/versions are known of the server.
	GroupVersions int
	// Memory bounds their descriptions, in bytes (discovery.GroupVersion.Size). A
	// group/version beyond it is known by its name alone.
	Memory int
	// Document bounds the list of everything, and what a stream sends without a
	// bookmark, in bytes. Group bounds what is said of one group in either, and the
	// document of one group/version, in bytes, and Elements in JSON values: three
	// bytes, {}, take hundreds in memory.
	Document        int64
	Group, Elements int
	// Rate bounds what a stream sends in the long run, in bytes a second; Burst is
	// how much it may send at once. 0: neither is bounded.
	Rate, Burst int64
}

// DefaultLimits are those of any server: 4,096 group/versions, or 10,000 resources.
// Reading a stream of such a server takes less than 64 MB whatever it sends.
func DefaultLimits() Limits {
	return Limits{
		GroupVersions: 4096, Memory: 16 << 20, Document: 32 << 20, Group: 4 << 20, Elements: 60_000,
		Rate: 256 << 10, Burst: 64 << 20,
	}
}

// ConfiguredLimits are those of the servers that a gateway starts with. They are above
// the bounds that the CRD server has itself.
func ConfiguredLimits() Limits {
	return Limits{GroupVersions: 32768, Memory: 128 << 20, Document: 256 << 20, Group: 128 << 20, Elements: 6_000_000}
}

// ErrBeyondLimits is why what a server says of a group/version is left out. The
// group/version is known by its name or by what was known before.
var ErrBeyondLimits = errors.New("what the server says of it is beyond the limits on the discovery of one server")

// errTooLong says that a stream passed its bound.
var errTooLong = errors.New("the server sends more than the limits on the discovery of one server allow")

// errRoom ends a stream of which something was left out that there is room for now.
var errRoom = errors.New("the server has less than before, and something was left out: it is asked for everything again")

// IsTooLong reports whether an error of Follow says that the stream passed its bound:
// opening it again at once costs as much again.
func IsTooLong(err error) bool { return errors.Is(err, errTooLong) }

// maxNamedBeyond bounds the group/versions that are named of those left out.
const maxNamedBeyond = 1000

// excess is what is left out because of the limits.
type excess struct {
	beyond []Unread // known by name
	more   int      // others
}

func (e *excess) name(id schema.GroupVersion) {
	if len(e.beyond) < maxNamedBeyond {
		e.beyond = append(e.beyond, Unread{id, ErrBeyondLimits})
		return
	}
	e.more++
}

// Dropped returns how many group/versions are left out because of the limits, those
// included that are known by name (Unread).
func (s *Source) Dropped() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.paths() {
		p := s.parts[path]
		n += len(p.beyond) + p.more
	}
	return n
}

// within keeps of descriptions what there is room for, the first ones first, and what
// was known before of those that there is none for.
func (s *Source) within(p *part, known knownVersions) {
	left := s.cfg.Limits.Memory
	kept := p.gvs[:0]
	for _, gv := range p.gvs {
		id := schema.GroupVersion{Group: gv.Group, Version: gv.Version}
		if size := gv.Size(); size <= left {
			left -= size
			kept = append(kept, gv)
			continue
		}
		p.name(id)
		gv = known.stale(id)
		if size := gv.Size(); size <= left {
			left -= size
		} else {
			gv = discovery.GroupVersion{Group: id.Group, Version: id.Version, Unknown: true}
		}
		kept = append(kept, gv)
	}
	p.gvs = kept
}

// meter bounds how much a stream may send. It is not safe for concurrent use.
type meter struct {
	limits Limits
	rate   *rate.Limiter // in bytes; nil: no bound
	// silent counts the bytes since the last bookmark.
	silent int64
}

func newMeter(limits Limits) *meter {
	m := &meter{limits: limits}
	if limits.Rate > 0 {
		m.rate = rate.NewLimiter(rate.Limit(limits.Rate), int(limits.Burst))
	}
	return m
}

// take counts n bytes; it returns errTooLong if they exceed a bound.
func (m *meter) take(n int) error {
	m.silent += int64(n)
	if m.silent > m.limits.Document || m.rate != nil && !m.rate.AllowN(time.Now(), n) {
		return errTooLong
	}
	return nil
}
