package trace

func (r *Reader) receiptRequest(line []byte) (q Request, skip bool, err error) {
	return Request{}, false, r.lineError("", "receipts are not read yet")
}
