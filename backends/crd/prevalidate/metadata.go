package prevalidate

import "bytes"

// metadataDepth is how deep the fields of an object's own metadata are.
const metadataDepth = 2

// metadata consumes metadata that does not change when it is decoded into
// metav1.ObjectMeta and encoded again: no field is unknown, null, empty or of another
// type, and times are in UTC and whole seconds. With needsGeneration there must be a
// generation.
func (w *walker) metadata(needsGeneration bool) bool {
	if w.Peek() != '{' {
		return false
	}
	generation := false
	for key := range w.members {
		generation = generation || string(key) == "generation"
		if !w.metadataField(string(key)) {
			return false
		}
	}
	return w.ok() && (generation || !needsGeneration)
}

func (w *walker) metadataField(name string) bool {
	switch name {
	case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion":
		return w.nonempty()
	case "generation":
		return w.positive()
	case "creationTimestamp":
		return w.from == Body && w.Depth() == metadataDepth && w.Null() || w.time()
	case "deletionTimestamp":
		return w.time()
	case "deletionGracePeriodSeconds":
		return w.whole()
	case "labels", "annotations":
		return w.filled('{') && w.texts()
	case "finalizers":
		return w.filled('[') && w.elementsAre(w.isText)
	case "ownerReferences":
		return w.filled('[') && w.elementsAre(w.ownerReference)
	case "managedFields":
		return w.filled('[') && w.elementsAre(w.managedFields)
	}
	return false
}

// texts consumes an object of strings.
func (w *walker) texts() bool {
	for range w.members {
		if !w.isText() {
			return false
		}
	}
	return w.ok()
}

// elementsAre consumes a list, and each element with consume.
func (w *walker) elementsAre(consume func() bool) bool {
	for range w.Elements {
		if !consume() {
			return false
		}
	}
	return w.ok()
}

// ownerReference consumes an element of ownerReferences.
func (w *walker) ownerReference() bool {
	required := 0
	for key := range w.members {
		var ok bool
		switch string(key) {
		case "apiVersion", "kind", "name", "uid":
			required++
			ok = w.isText()
		case "controller", "blockOwnerDeletion":
			ok = w.Literal("true") || w.Literal("false")
		}
		if !ok {
			return false
		}
	}
	return w.ok() && required == 4
}

// managedFields consumes an element of managedFields.
func (w *walker) managedFields() bool {
	for key := range w.members {
		var ok bool
		switch string(key) {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			ok = w.nonempty()
		case "time":
			ok = w.time()
		case "fieldsV1":
			ok = w.Peek() == '{' && w.fieldSet()
		}
		if !ok {
			return false
		}
	}
	return w.ok()
}

// fieldSet consumes an object that contains nothing but such objects.
func (w *walker) fieldSet() bool {
	for range w.members {
		if !w.fieldSet() {
			return false
		}
	}
	return w.ok()
}

// filled reports whether a list or object that is not empty comes next. open is its
// opening bracket.
func (w *walker) filled(open byte) bool {
	if w.Peek() != open {
		return false
	}
	at := w.Pos
	w.Pos++
	c := w.Peek()
	w.Pos = at
	return c != open+2 // the closing bracket in ASCII
}

// whole consumes an integer.
func (w *walker) whole() bool {
	start := w.Pos
	return w.number() && bytes.IndexByte(w.Data[start:w.Pos], '.') < 0
}

// positive consumes an integer above 0.
func (w *walker) positive() bool {
	c := w.Peek()
	return c >= '1' && c <= '9' && w.whole()
}

// time consumes a time in the form of isTime.
func (w *walker) time() bool {
	text, ok := w.text()
	return ok && isTime(text)
}

// isTime reports whether text is a time in UTC and whole seconds. It accepts neither the
// 29th of February nor years before 1000, which include the zero time.
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

// daysOf returns the number of days that a month has in every year.
func daysOf(month int) int {
	switch month {
	case 2:
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}
