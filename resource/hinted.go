package resource

import "context"

// Hinted is a Store whose writes can start from a state that the caller has at
// hand (a cache), which saves a read in the common case. The rule of [Mutate]
// makes it safe: whatever is decided from a hint is committed only if the hint
// is still the current state, and an error or a no-op reached from it is
// reported only if it is reached again from the current state.
type Hinted interface {
	Store
	// UpdateFrom is Update whose first call of mutate sees hint; a nil hint
	// is plain Update.
	UpdateFrom(ctx context.Context, key Key, hint *Object, mutate Mutate) (*Object, error)
	// DeleteFrom is Delete whose first call of check sees hint; a nil hint is
	// plain Delete.
	DeleteFrom(ctx context.Context, key Key, hint *Object, check func(cur *Object) error) (*Object, error)
}
