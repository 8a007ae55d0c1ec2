package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// listing is the state of one List.
type listing struct {
	store  *store
	opts   resource.ListOptions
	prefix string // of the listed range; continue tokens are relative to it
	next   keyRange
	pager  pager
	rev    int64 // 0 until known: the latest
	list   resource.List
	last   string // the last key examined
	// found is the number of objects of the page, and size the bytes of those in list.
	// With counting set, objects are counted but not added to list.
	found    int64
	size     int64
	counting bool
	// unreadable are the errors of objects that cannot be read, with which the list fails.
	unreadable []error
	// remaining is the number of keys after the page.
	remaining int64
}

// List returns a page of objects. It reads the range in smaller pages, all at the revision
// of the first.
func (s *store) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	l := &listing{
		store: s, opts: opts,
		prefix: s.prefix + s.info.RangePath(opts.Namespace),
		next:   s.span(opts.Namespace, opts.Selector),
	}
	if err := l.begin(); err != nil {
		return nil, err
	}
	for {
		more, err := l.page(ctx)
		if err != nil {
			return nil, err
		}
		if !more || l.full() || l.part() || len(l.unreadable) >= resource.MaxUnreadable {
			break
		}
	}
	if len(l.unreadable) > 0 {
		return nil, resource.UnreadableList(s.info.GroupResource(), l.unreadable)
	}
	return l.finish(ctx)
}

// begin sets the key and the revision to start at.
func (l *listing) begin() error {
	if l.opts.Continue != "" {
		rev, start, err := resource.DecodeContinue(l.opts.Continue)
		if err != nil {
			return err
		}
		l.next.start = max(l.next.start, l.prefix+start)
		if rev != resource.InconsistentRevision {
			l.rev = rev
		}
		return nil
	}
	if l.opts.At.Freshness == resource.Exact {
		if l.opts.At.Revision <= 0 {
			return apierrors.NewBadRequest("an exact list needs a resource version above 0")
		}
		l.rev = l.opts.At.Revision
	}
	return nil
}

// missing returns the number of keys that complete the page; 0 if it is not known because
// there is no limit or a selector.
func (l *listing) missing() int64 {
	if !l.opts.Selector.Empty() {
		return 0
	}
	return max(0, l.opts.Limit-l.found)
}

func (l *listing) full() bool { return l.opts.Limit > 0 && l.found >= l.opts.Limit }

// part reports whether the objects read are enough for a part of a list.
func (l *listing) part() bool { return l.opts.Parts && l.size >= pageBytes }

// page reads some keys and adds the objects that match; more reports whether keys follow.
func (l *listing) page(ctx context.Context) (more bool, err error) {
	if l.next.start >= l.next.end {
		return false, l.emptyRange(ctx)
	}
	opts := []clientv3.OpOption{clientv3.WithRev(l.rev)}
	if l.opts.At.Freshness == resource.Any && l.rev == 0 && l.opts.Continue == "" {
		opts = append(opts, clientv3.WithSerializable())
	}
	resp, err := l.store.page(ctx, &l.store.scope, &l.pager, l.missing(), l.next, opts...)
	if err != nil {
		return false, l.readError(ctx, err)
	}
	if l.rev == 0 {
		l.rev = resp.Header.Revision
		if at := l.opts.At; at.Freshness == resource.NotOlderThan && l.opts.Continue == "" && at.Revision > l.rev {
			return false, resource.TooLargeRevision(at.Revision, l.rev)
		}
	}
	read, err := l.decode(resp.Kvs)
	if err != nil {
		return false, err
	}
	for i, kv := range resp.Kvs {
		if l.full() {
			l.remaining = resp.Count - int64(i)
			return true, nil
		}
		l.last = string(kv.Key)
		obj, err := read[i].object, read[i].err
		if err != nil {
			l.unreadable = append(l.unreadable, err)
			continue
		}
		if !l.opts.Selector.Matches(obj) {
			continue
		}
		l.found++
		if !l.counting {
			l.list.Items = append(l.list.Items, obj)
			l.size += int64(len(obj.Data))
		}
	}
	l.remaining = resp.Count - int64(len(resp.Kvs))
	l.next.start = l.last + "\x00"
	return resp.More, nil
}

// value is a decoded value, or why it cannot be read.
type value struct {
	object *resource.Object
	err    error
}

// decode decodes values and prepares their objects for the selector.
func (l *listing) decode(kvs []*mvccpb.KeyValue) ([]value, error) {
	out := make([]value, len(kvs))
	objects := make([]*resource.Object, 0, len(kvs))
	for i, kv := range kvs {
		if out[i].object, _, out[i].err = l.store.decode(kv); out[i].err == nil {
			objects = append(objects, out[i].object)
		}
	}
	return out, l.opts.Selector.Prepare(objects)
}

// emptyRange sets the revision of a list if its token leaves nothing to read.
func (l *listing) emptyRange(ctx context.Context) (err error) {
	if l.rev == 0 {
		l.rev, err = l.store.revision.current(ctx)
	}
	return err
}

func (l *listing) readError(ctx context.Context, err error) error {
	switch {
	case isCompacted(err) && l.opts.Continue == "":
		return resource.ExpiredList()
	case isCompacted(err):
		// Nothing of this page was sent: the new token repeats it.
		_, start, _ := resource.DecodeContinue(l.opts.Continue)
		return resource.ExpiredContinue(resource.EncodeContinue(
			resource.InconsistentRevision, strings.TrimSuffix(start, "\x00")))
	case isFuture(err):
		now, readErr := l.store.revision.current(ctx)
		if readErr != nil {
			return readErr
		}
		return resource.TooLargeRevision(l.rev, now)
	}
	return asStatus(ctx, err)
}

func (l *listing) finish(ctx context.Context) (out *resource.List, err error) {
	l.list.Revision = l.rev
	if !l.full() && !l.part() || l.remaining == 0 {
		return &l.list, nil
	}
	l.list.Continue = l.token(l.last)
	if l.opts.Selector.Empty() {
		l.list.Remaining = &l.remaining
	}
	if !l.full() {
		l.list.Page, err = l.pageEnd(ctx)
	}
	return &l.list, err
}

// token returns the continue token of the page that begins after a key.
func (l *listing) token(last string) string {
	return resource.EncodeContinue(l.rev, strings.TrimPrefix(last, l.prefix))
}

// pageEnd returns the end of the page that a part was read of.
func (l *listing) pageEnd(ctx context.Context) (*resource.PageEnd, error) {
	switch {
	case l.opts.Limit <= 0:
		return &resource.PageEnd{}, nil
	case !l.opts.Selector.Empty():
		return l.selectedEnd(ctx)
	}
	missing := l.missing()
	behind := l.remaining - missing
	if behind <= 0 {
		return &resource.PageEnd{}, nil
	}
	// The keys in between are read without their values.
	last := l.last
	for missing > 0 {
		resp, err := l.store.read(ctx, &l.store.scope, opListKeys, last+"\x00", clientv3.WithRange(l.next.end), clientv3.WithKeysOnly(),
			clientv3.WithLimit(min(missing, maxChunk)), clientv3.WithRev(l.rev))
		if err != nil {
			return nil, l.readError(ctx, err)
		}
		if len(resp.Kvs) == 0 {
			return nil, internal("etcd has fewer keys than it counted")
		}
		last = string(resp.Kvs[len(resp.Kvs)-1].Key)
		missing -= int64(len(resp.Kvs))
	}
	return &resource.PageEnd{Continue: l.token(last), Remaining: &behind}, nil
}

// selectedEnd is pageEnd with a selector, which needs the objects. They are read, counted
// and dropped, and read again for the parts that follow, which saves memory.
func (l *listing) selectedEnd(ctx context.Context) (*resource.PageEnd, error) {
	l.counting = true
	for more := true; more && !l.full(); {
		var err error
		if more, err = l.page(ctx); err != nil {
			return nil, err
		}
	}
	if !l.full() || l.remaining == 0 {
		return &resource.PageEnd{}, nil
	}
	return &resource.PageEnd{Continue: l.token(l.last)}, nil
}
