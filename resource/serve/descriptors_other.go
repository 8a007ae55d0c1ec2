//go:build !unix

package serve

// descriptors is how many the process may have open.
func descriptors() int { return manyDescriptors }
