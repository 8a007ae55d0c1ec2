package accept

// metadata consumes metadata that is the same after it was written into
// metav1.ObjectMeta and read from it: no field is unknown, null, empty or of
// another type, and times are in UTC and whole seconds. With counted there must
// be a generation.
func (w *walker) metadata(counted bool) bool {
	generation := false
	ok := w.peek() == '{' && w.members(func(key []byte, _ bool) bool {
		switch string(key) {
		case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion":
			return w.nonempty()
		case "generation":
			generation = true
			return w.positive()
		case "creationTimestamp":
			return w.from == Body && w.peek() == 'n' && w.depth == metadataDepth && w.literal("null") || w.time()
		case "deletionTimestamp":
			return w.time()
		case "deletionGracePeriodSeconds":
			return w.whole()
		case "labels", "annotations":
			return w.peekInside('{') && w.members(func([]byte, bool) bool { _, _, ok := w.text(); return ok })
		case "finalizers":
			return w.peekInside('[') && w.list(func() bool { _, _, ok := w.text(); return ok })
		case "ownerReferences":
			return w.peekInside('[') && w.list(w.owner)
		case "managedFields":
			return w.peekInside('[') && w.list(w.managedFields)
		}
		return false
	})
	return ok && (generation || !counted)
}

// metadataDepth is how deep the fields of an object's own metadata lie.
const metadataDepth = 2

// owner consumes an owner reference.
func (w *walker) owner() bool {
	required := 0
	ok := w.members(func(key []byte, _ bool) bool {
		switch string(key) {
		case "apiVersion", "kind", "name", "uid":
			required++
			_, _, ok := w.text()
			return ok
		case "controller", "blockOwnerDeletion":
			return w.peek() == 't' && w.literal("true") || w.literal("false")
		}
		return false
	})
	return ok && required == 4
}

// managedFields consumes what one manager owns.
func (w *walker) managedFields() bool {
	return w.members(func(key []byte, _ bool) bool {
		switch string(key) {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			return w.nonempty()
		case "time":
			return w.time()
		case "fieldsV1":
			return w.peek() == '{' && w.fieldSet()
		}
		return false
	})
}

// fieldSet consumes objects in objects.
func (w *walker) fieldSet() bool {
	return w.members(func([]byte, bool) bool { return w.fieldSet() })
}

// peekInside reports whether a list or object follows that is not empty.
func (w *walker) peekInside(open byte) bool {
	if w.peek() != open {
		return false
	}
	at := w.pos
	w.pos++
	c := w.peek()
	w.pos = at
	return c != open+2 // the closing one in ASCII
}

// whole consumes a whole number.
func (w *walker) whole() bool {
	if c := w.peek(); c != '-' && (c < '0' || c > '9') {
		return false
	}
	start := w.pos
	if !w.number() {
		return false
	}
	for _, c := range w.data[start:w.pos] {
		if c == '.' {
			return false
		}
	}
	return true
}

// positive consumes a whole number above 0.
func (w *walker) positive() bool {
	c := w.peek()
	return c >= '1' && c <= '9' && w.whole()
}

// time consumes a time as metadata has it.
func (w *walker) time() bool {
	s, _, ok := w.text()
	return ok && isTime(w.of(s))
}

// isTime reports whether a text is a time in UTC and whole seconds. The last
// days of long months are left to others, and so is the first millennium, whose
// first second is no time.
func isTime(t []byte) bool {
	const shape = "2000-00-00T00:00:00Z"
	if len(t) != len(shape) {
		return false
	}
	for i := range len(shape) {
		digit := t[i] >= '0' && t[i] <= '9'
		if shape[i] >= '0' && shape[i] <= '9' != digit || !digit && t[i] != shape[i] {
			return false
		}
	}
	two := func(i int) int { return int(t[i]-'0')*10 + int(t[i+1]-'0') }
	century, month, day := two(0), two(5), two(8)
	return century >= 10 && month >= 1 && month <= 12 && day >= 1 && day <= daysOf(month) &&
		two(11) <= 23 && two(14) <= 59 && two(17) <= 59
}

// daysOf is how many days a month always has.
func daysOf(month int) int {
	switch month {
	case 2:
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}
