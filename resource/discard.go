package resource

import "context"

// Discarder is a Store that can remove what it cannot read.
type Discarder interface {
	Store
	// Discard removes the object under key, whose value cannot be decrypted or
	// decoded, whatever it is: nothing that a deletion waits for or asks can be
	// known of it. With dryRun it only looks. Errors: NotFound; Conflict when
	// the object can be read.
	Discard(ctx context.Context, key Key, dryRun bool) error
}
