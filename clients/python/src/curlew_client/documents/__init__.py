"""What the control plane's operations answer and take, as typed dicts.

The names are those of the HTTP API's document without `Document`. A node that is newer than this
package may say more than these do; an older one may lack what is newest.
"""
