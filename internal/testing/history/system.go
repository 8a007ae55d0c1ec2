package history

import (
	"context"
	"time"

	"portico/resource"
)

// System is a system under test.
type System struct {
	// Doors are accesses to one storage, which is empty. At least one.
	Doors []Door
	// Compact removes the history before rev, or less of it; nil if history is not removed.
	Compact func(ctx context.Context, rev int64) error
	// Restarts each restart a part of the system. Until one returns, and shortly after,
	// calls may fail.
	Restarts []func(ctx context.Context) error
	// Journal returns every commit up to a revision, from a source that is not under test.
	// Required with Restarts.
	Journal func(ctx context.Context, upTo int64) ([]Commit, error)
	// Forgetful means that watches may expire at any time.
	Forgetful bool
	// Late means that a door may refuse a watch, or a read not older than a revision, that
	// it has not reached. Other reads it may not.
	Late bool
}

// Door is one access to the storage.
type Door struct {
	Name string
	// Store returns the store of Info, which a restart may replace.
	Store func() resource.Store
	// Holds means that a deletion waits for finalizers behind the door; otherwise the
	// writers implement it.
	Holds bool
	// EndsWatches means that watches end without an error.
	EndsWatches bool
	// Silent means that the answer to a deletion does not have its revision, but the state that
	// was deleted.
	Silent bool
}

// Commit is the change of one object by one revision.
type Commit struct {
	Revision int64
	Key      resource.Key
	// Object is the new state, nil after a deletion.
	Object *resource.Object
}

// Info is the resource of histories.
func Info() *resource.Info {
	return &resource.Info{
		Group: "historytest.portico.dev", Versions: []string{"v1"},
		Resource: "records", Singular: "record", Kind: "Record",
		Namespaced: true, Path: "historytest.portico.dev/records",
	}
}

// TierField is the selectable field of records; Tier reads it.
const TierField = "data.tier"

// Tier returns the values of a record's selectable fields. It is
// resource.Selector.Extract.
func Tier(o *resource.Object) map[string]string {
	f, err := factsOf(o)
	if err != nil {
		return map[string]string{}
	}
	return map[string]string{TierField: f.tier}
}

// Config configures a history.
type Config struct {
	// Seed determines the operations.
	Seed uint64
	// Steps is the number of writes, and that of reads.
	Steps int
	// Disturbances is the number of compactions and restarts, of those that the System has.
	Disturbances int
	// InTurn makes each restart once, in their order and one after the other, without
	// compactions. Clients work until then; Steps and Disturbances are not used.
	InTurn bool
	// Pause is the mean pause of a client between its calls. Default: none or a fraction of a
	// millisecond, so that calls overlap.
	Pause time.Duration
	// Patience bounds the wait for anything that must happen. Default 30 s.
	Patience time.Duration
}

// The numbers of clients of a history.
const (
	writers  = 4
	readers  = 3
	Watchers = 8
)
