package history

import (
	"context"
	"time"

	"portico/resource"
)

// System is what a history is played on.
type System struct {
	// Doors lead to one and the same storage, which is empty. At least one.
	Doors []Door
	// Compact forgets the history before rev, or less of it; nil: it is never
	// forgotten.
	Compact func(ctx context.Context, rev int64) error
	// Restarts each end a part of the system and begin it anew on what is
	// stored. Until one returns, and a moment after, calls may fail.
	Restarts []func(ctx context.Context) error
	// Journal returns every commit up to a revision, from a source that is not
	// under test. Required if there are Restarts.
	Journal func(ctx context.Context, upTo int64) ([]Commit, error)
	// Forgetful says that watches may expire at any time.
	Forgetful bool
	// Late says that a watch, and a read of what is not older than a revision,
	// may be refused by a door that has not heard of it yet. Other reads may not.
	Late bool
}

// Door is one way into the storage.
type Door struct {
	Name string
	// Store returns the store of Info, which a restart may replace.
	Store func() resource.Store
	// Holds says that a deletion is held up behind the door while the object
	// has finalizers; if not, the writers do it.
	Holds bool
	// EndsWatches says that watches end by themselves, without an error.
	EndsWatches bool
}

// Commit is what one revision did to one object.
type Commit struct {
	Revision int64
	Key      resource.Key
	// Object is the new state, nil when the object was removed.
	Object *resource.Object
}

// Info is the resource that histories are about.
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

// Config says how a history is played.
type Config struct {
	// Seed decides what is done.
	Seed uint64
	// Steps is how many writes there are in all; reads are as many.
	Steps int
	// Disturbances is how many compactions and restarts there are, of those
	// that the System has.
	Disturbances int
	// Writers, Readers and Watchers are how many there are. Default 4, 3, 8.
	Writers, Readers, Watchers int
	// Patience bounds the wait for anything that must happen. Default 30 s.
	Patience time.Duration
}

func (c Config) withDefaults() Config {
	if c.Writers <= 0 {
		c.Writers = 4
	}
	if c.Readers <= 0 {
		c.Readers = 3
	}
	if c.Watchers <= 0 {
		c.Watchers = 8
	}
	if c.Patience <= 0 {
		c.Patience = 30 * time.Second
	}
	return c
}
