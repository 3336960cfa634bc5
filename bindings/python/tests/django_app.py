"""A site of Django with a login: sessions in a database, forms against forgery. Prints its port."""

from __future__ import annotations

import socketserver
import sys
import threading
from pathlib import Path
from typing import Any
from wsgiref import simple_server

import django
from django.conf import settings

FOLDER = Path(sys.argv[1])
USERS = int(sys.argv[2])

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(FOLDER / "site.sqlite3"),
            "OPTIONS": {"timeout": 30},
        }
    },
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    LOGIN_REDIRECT_URL="/me",
    LOGIN_URL="/login",
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    # The default one is slow on purpose.
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [str(FOLDER)]}],
)
django.setup()

from django.contrib.auth import views  # noqa: E402
from django.contrib.auth.decorators import login_required  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.shortcuts import render  # noqa: E402
from django.urls import path  # noqa: E402


@login_required
def me(request: HttpRequest) -> HttpResponse:
    return render(request, "me.html", {"name": request.user.get_username()})


urlpatterns = [
    path("login", views.LoginView.as_view(template_name="login.html")),
    path("logout", views.LogoutView.as_view(next_page="/login")),
    path("me", me),
]


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class Quiet(simple_server.WSGIRequestHandler):
    def log_message(self, *_args: Any) -> None:
        pass


if __name__ == "__main__":
    form = "<form method=post>{% csrf_token %}"
    (FOLDER / "login.html").write_text(form + "{{ form.as_p }}</form>")
    (FOLDER / "me.html").write_text(form + "hello {{ name }}</form>")
    call_command("migrate", verbosity=0)
    for number in range(USERS):
        User.objects.create_user(f"user{number}", password=f"secret & {number}")
    server = simple_server.make_server("127.0.0.1", 0, get_wsgi_application(), Server, Quiet)
    threading.Thread(target=server.serve_forever).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()
